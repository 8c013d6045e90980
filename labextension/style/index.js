import './base.css';
import './sidebar.css';
import './liveview.css';
