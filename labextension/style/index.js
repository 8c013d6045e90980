import 'uplot/dist/uPlot.min.css';
import './base.css';
import './sidebar.css';
import './liveview.css';
import './charts.css';
import './logs.css';
import './stacks.css';
import './resume.css';
