"""Panel CSS: the page's colors and sizes, light and dark."""

ROOT = "mnt-panel"

CSS = """
.mnt-panel{container-type:inline-size;background:var(--jp-layout-color0,#fff);
 color:var(--jp-ui-font-color1,#212121);padding:12px;max-width:1000px;overflow:hidden;
 font:13px/20px var(--jp-ui-font-family,sans-serif);font-variant-numeric:tabular-nums}
.mnt-panel,.mnt-panel :is(.mnt-table,.mnt-row,.mnt-head,.mnt-checks,.mnt-part,.mnt-plain){
 display:block}
.mnt-panel .widget-html,.mnt-panel .widget-html-content{font:inherit;line-height:inherit;
 height:auto;min-height:0;overflow-wrap:anywhere;margin:0;color:inherit}
.mnt-panel .widget-box{overflow:visible;margin:0}
.mnt-panel :is(.widget-dropdown,.widget-text,.widget-combobox,.widget-checkbox,.widget-radio){
 width:auto;max-width:100%;margin:0}
.mnt-panel :is(select,input[type=text],input[type=number]){height:28px;line-height:16px;
 font-size:12px;background-color:var(--jp-layout-color0,#fff);
 color:var(--jp-ui-font-color1,#212121);border:1px solid var(--jp-layout-color4,#757575);
 border-radius:2px;min-width:0}
.mnt-panel .widget-dropdown select{appearance:auto;background-image:none}
.mnt-panel :is(select,input):disabled{opacity:1;color:var(--jp-ui-font-color2,#757575)}
.mnt-panel :is(select,input,button):focus-visible{
 outline:2px solid var(--jp-focus-outline-color,#1976d2);outline-offset:1px}
.mnt-panel ::placeholder{color:var(--jp-ui-font-color2,#757575);opacity:1}
.mnt-panel .widget-label{font-size:12px;width:auto;color:var(--jp-ui-font-color1,#212121);
 margin-right:8px}
.mnt-panel .mnt-quiet .widget-label{position:absolute;width:1px;height:1px;overflow:hidden;
 clip-path:inset(50%);white-space:nowrap}
.mnt-panel .mnt-quiet .widget-radio-box label{font-size:12px;color:inherit;width:auto;margin:0}
.mnt-panel .mnt-bar{display:flex;flex-wrap:wrap;gap:8px 16px;align-items:center}
.mnt-panel .mnt-grow{flex:1 1 auto;min-width:0}
.mnt-panel .mnt-second{color:var(--jp-ui-font-color2,#616161);font-size:11px;line-height:16px}
.mnt-panel .mnt-table{margin-top:12px;border-top:1px solid var(--jp-layout-color4,#757575)}
.mnt-panel .mnt-row{border-top:1px solid var(--jp-border-color2,#e0e0e0);padding:4px 0}
.mnt-panel .mnt-head + .mnt-row{border-top:0}
.mnt-panel .mnt-cells{display:grid;align-items:center;column-gap:16px;row-gap:4px;min-height:32px;
 grid-template-columns:minmax(112px,.6fr) minmax(120px,1fr) 184px minmax(180px,1.3fr) 64px}
.mnt-panel .mnt-head .mnt-cells{min-height:24px}
.mnt-panel .mnt-gpus{display:flex;align-items:center;gap:8px;flex-wrap:nowrap}
.mnt-panel .mnt-gpus .widget-html{white-space:nowrap}
.mnt-panel .mnt-iface .widget-dropdown{flex:1 1 auto}
.mnt-panel .mnt-iface select{width:100%}
.mnt-panel .jupyter-button.mnt-right{margin-left:auto}
.mnt-panel .widget-checkbox .widget-label-basic{width:auto;max-width:100%;white-space:normal;
 overflow-wrap:anywhere;font-weight:600;font-size:13px;margin:0;display:flex;align-items:center}
.mnt-panel .mnt-checks{padding-left:24px}
.mnt-panel .mnt-check{display:flex;flex-wrap:wrap;gap:4px 8px;align-items:center;min-height:24px;
 font-size:12px;line-height:16px}
.mnt-panel .mnt-check .widget-html{flex:0 1 auto;min-width:0;max-width:100%}
.mnt-panel .jupyter-button{height:auto;min-height:24px;width:auto;padding:3px 10px;line-height:16px;
 font-size:12px;border:1px solid var(--jp-layout-color4,#757575);border-radius:2px;margin:0;
 background:transparent;color:var(--jp-ui-font-color1,#212121);box-shadow:none}
.mnt-panel .jupyter-button:hover:not(.mnt-blocked){box-shadow:none;
 background:var(--jp-layout-color2,#eee)}
.mnt-panel .mnt-launch.jupyter-button{background:var(--jp-accept-color-normal,#1976d2);color:#fff;
 border-color:var(--jp-accept-color-normal,#1976d2);font-weight:600;min-height:28px}
.mnt-panel .mnt-launch.jupyter-button:hover:not(.mnt-blocked){
 background:var(--jp-accept-color-hover,#1565c0);color:#fff}
.mnt-panel .mnt-blocked.jupyter-button,.mnt-panel .mnt-launch.mnt-blocked.jupyter-button{
 background:var(--jp-layout-color2,#eee);border-color:var(--jp-border-color2,#e0e0e0);
 color:var(--jp-ui-font-color1,#616161);font-weight:400;cursor:default}
.mnt-panel .mnt-stop.jupyter-button{color:var(--jp-error-color0,#b71c1c);
 border-color:currentColor}
[data-jp-theme-light=false] .mnt-panel .mnt-stop.jupyter-button{
 color:var(--jp-error-color2,#e57373)}
.mnt-panel .mnt-settings,.mnt-panel .mnt-fields,.mnt-panel .mnt-part{margin-top:12px}
.mnt-panel .mnt-fields{display:grid;gap:12px 16px;align-items:start;
 grid-template-columns:repeat(auto-fill,minmax(min(140px,100%),1fr))}
.mnt-panel .mnt-fields .mnt-fields{display:contents}
.mnt-panel .mnt-fields :is(.widget-text,.widget-dropdown){display:flex;flex-direction:column;
 align-items:stretch;height:auto}
.mnt-panel .mnt-fields .widget-label{height:auto;line-height:16px;margin:0 0 2px;text-align:left}
.mnt-panel .mnt-fields :is(input,select){width:100%;flex:none}
.mnt-panel .mnt-part{border-top:1px solid var(--jp-layout-color4,#757575);padding-top:12px}
.mnt-panel .mnt-field{display:block;max-width:100%;min-width:0}
.mnt-panel .mnt-field .widget-html{font-size:12px;line-height:16px}
.mnt-panel .mnt-fields :is(.mnt-wide,.mnt-field:has(.mnt-bad)){grid-column:span 2}
.mnt-panel .mnt-predicted{display:grid;gap:12px 24px;font-size:12px;line-height:16px;
 grid-template-columns:repeat(auto-fit,minmax(170px,1fr))}
.mnt-panel .mnt-part > .jupyter-button{margin-top:8px}
.mnt-panel .mnt-bars{display:grid;grid-template-columns:auto minmax(24px,1fr) auto;gap:4px 8px;
 align-items:center;margin-top:2px}
.mnt-panel .mnt-meter{display:block;height:8px;background:var(--jp-layout-color3,#e0e0e0)}
.mnt-panel .mnt-meter i{display:block;height:8px;background:var(--jp-brand-color1,#1976d2)}
.mnt-panel .mnt-over i{background:var(--jp-error-color1,#d32f2f)}
.mnt-panel .mnt-figure{text-align:right}
.mnt-panel .mnt-predicted b{font-size:14px;line-height:20px}
.mnt-panel .mnt-slots{display:grid;gap:1px;margin:6px 0}
.mnt-panel .mnt-slots i{height:8px;background:var(--jp-brand-color1,#1976d2)}
.mnt-panel .mnt-slots i.o{background:none;border:1px solid var(--jp-layout-color4,#8a8a8a)}
.mnt-panel pre{margin:8px 0 0;padding:8px;font:12px/16px var(--jp-code-font-family,monospace);
 background:var(--jp-cell-editor-background,#f5f5f5);color:inherit;white-space:pre-wrap;
 border:1px solid var(--jp-border-color2,#e0e0e0);overflow-wrap:anywhere}
.mnt-panel .mnt-ok{color:var(--jp-success-color1,#388e3c)}
.mnt-panel .mnt-warn{color:var(--jp-warn-color0,#e65100)}
.mnt-panel .mnt-bad{color:var(--jp-error-color1,#d32f2f)}
.mnt-panel .mnt-off{color:var(--jp-ui-font-color2,#616161)}
[data-jp-theme-light=false] .mnt-panel .mnt-warn{color:var(--jp-warn-color1,#ff9800)}
[data-jp-theme-light=false] .mnt-panel .mnt-bad{color:var(--jp-error-color2,#e57373)}
.mnt-panel .mnt-busy{display:none}
[data-mnt-kernel=busy] .mnt-panel .mnt-busy{display:block;animation:mnt-late 0s linear .6s both}
@keyframes mnt-late{from{visibility:hidden}to{visibility:visible}}
@container (max-width:360px){
 .mnt-panel .mnt-fields > *{grid-column:1/-1}
}
@container (max-width:720px){
 .mnt-panel .mnt-cells{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}
 .mnt-panel .mnt-head{display:none}
 .mnt-panel .mnt-iface{grid-column:1/3;order:1}
 .mnt-panel .mnt-predicted{grid-template-columns:minmax(0,1fr)}
}
"""
