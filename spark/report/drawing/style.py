"""The style sheet of the page: light and dark, from a phone to a wide screen, and on paper."""

_COLOURS = """
:root {
  color-scheme: light dark;
  --page: #f4f6f9; --card: #ffffff; --ink: #1a2330; --muted: #566375; --line: #dce1e8;
  --grid: #e7ebf0; --base: #9aa5b3; --hover: rgb(30 60 110 / 8%); --stripe: #f7f9fb;
  --shade: rgb(20 30 50 / 15%); --accent: #2366b0; --soft: #9cc3ea; --bad: #bd2431;
  --notice: #8a5a00; --notice-page: #fff6e0;
  --subscribe: #2366b0; --unsubscribe: #74ace0; --advertise: #b4540a; --unadvertise: #eb9f4c;
  --update: #2f8a5b; --other: #7d8794; --p50: #2366b0; --p99: #8b3fa8;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #11151b; --card: #1a2029; --ink: #e5eaf1; --muted: #9ba8b9; --line: #2e3744;
    --grid: #29313d; --base: #667384; --hover: rgb(160 200 255 / 10%); --stripe: #1e2530;
    --shade: rgb(0 0 0 / 45%); --accent: #62a5e8; --soft: #2f5f92; --bad: #ff7a82;
    --notice: #f2c14e; --notice-page: #332b18;
    --subscribe: #62a5e8; --unsubscribe: #3a6ea5; --advertise: #f09a4a; --unadvertise: #9c5f26;
    --update: #55b583; --other: #8b96a5; --p50: #62a5e8; --p99: #cf8ee8;
  }
}
"""

_TEXT = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 56px; overflow-wrap: anywhere; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 18px; line-height: 1.3; margin: 0 0 6px; }
h3 { font-size: 14px; line-height: 1.4; margin: 0; }
p { margin: 0; }
a { color: var(--accent); }
code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
header { margin-bottom: 20px; }
.when { font-size: 17px; color: var(--muted); }
.summary { margin-top: 10px; font-size: 16px; }
.made, .muted { color: var(--muted); }
.made { margin-top: 4px; font-size: 13px; }
.bad { color: var(--bad); }
.notice {
  margin-top: 12px; padding: 9px 14px; border-left: 4px solid var(--notice);
  border-radius: 4px; background: var(--notice-page);
}
.lead { max-width: 105ch; margin-bottom: 14px; color: var(--muted); }
.nothing { color: var(--muted); font-style: italic; }
section {
  margin-top: 16px; padding: 18px 20px 20px; border: 1px solid var(--line); border-radius: 10px;
  background: var(--card); scroll-margin-top: 12px;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(155px, 1fr)); gap: 12px; }
.tiles { margin: 0; }
.tiles > div {
  padding: 13px 16px; border: 1px solid var(--line); border-radius: 10px; background: var(--card);
}
.tiles dt { font-size: 13px; color: var(--muted); line-height: 1.35; }
.tiles dd { margin: 0; }
.tiles .value {
  margin-top: 2px; font-size: 25px; font-weight: 650; line-height: 1.3; letter-spacing: -0.01em;
}
.tiles .note { font-size: 12.5px; color: var(--muted); line-height: 1.35; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 18px 0 0; padding: 0; }
nav li { list-style: none; font-size: 14px; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
.sentences, .checks { margin: 0; padding-left: 20px; max-width: 105ch; }
.sentences li + li, .checks li + li { margin-top: 6px; }
"""

_TABLES = """
.scroll {
  overflow-x: auto; max-width: 100%;
  /* A shadow while there is more to the right: the first layer scrolls, and hides it there. */
  background:
    linear-gradient(var(--card), var(--card)) right / 24px 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 12px 100% no-repeat scroll;
}
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 13.5px; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { padding: 5px 12px; text-align: left; white-space: nowrap; vertical-align: top; }
thead th {
  color: var(--muted); font-size: 12.5px; font-weight: 600; vertical-align: bottom;
  padding-bottom: 4px;
}
thead .group { text-align: center; padding-bottom: 0; }
thead th[title] { text-decoration: underline dotted; text-underline-offset: 3px; cursor: help; }
tbody th { font-weight: 500; }
tbody tr:first-child > * { border-top: 1px solid var(--base); }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
tbody tr:hover > * { background: var(--stripe); }
th:first-child { padding-left: 0; position: sticky; left: 0; background: var(--card); }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
th.bar, td.bar { width: 26%; min-width: 150px; }
td.prose { white-space: normal; min-width: 220px; }
td.note { padding: 0 12px 9px 0; white-space: normal; }
tbody tr + tr > .note { border-top: 0; }
td.note > div {
  position: sticky; left: 0; width: fit-content; max-width: min(1100px, 100vw - 56px);
  color: var(--muted);
}
.share { display: grid; grid-template-columns: 4.2em 1fr; gap: 8px; align-items: center; }
.share span { text-align: right; font-variant-numeric: tabular-nums; }
details summary { cursor: pointer; }
.more { margin-top: 8px; }
.more > summary { color: var(--accent); margin-bottom: 6px; }
.text pre {
  margin: 6px 0 4px; padding: 8px 10px; max-height: 300px;
  overflow: auto; white-space: pre-wrap; border-radius: 6px;
  background: var(--page);
}
"""

_PLOTS = """
svg { display: block; }
.plot { overflow: visible; margin: 10px 0 30px 58px; width: calc(100% - 70px); }
.ranges { margin-left: 66px; width: calc(100% - 82px); }
.histogram { margin-left: 44px; width: calc(100% - 48px); }
.tick { fill: var(--muted); font-size: 12px; font-variant-numeric: tabular-nums; }
.tick.y { text-anchor: end; }
.tick.x { text-anchor: middle; }
.tick.x.first { text-anchor: start; }
.tick.x.last { text-anchor: end; }
.tick.name { fill: var(--ink); font-size: 13px; }
.grid { stroke: var(--grid); }
.base { stroke: var(--base); }
.hover { fill: transparent; }
.hover:hover { fill: var(--hover); }
.plot-title { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 20px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 0; padding: 0; }
.legend { font-size: 13px; color: var(--muted); }
.legend li { list-style: none; display: flex; align-items: center; gap: 6px; }
.key { flex: none; width: 12px; height: 12px; border-radius: 3px; background: var(--colour); }
.key.line { height: 3px; width: 16px; }
.key.whisker { height: 2px; }
.key.middle { border-radius: 50%; width: 11px; height: 11px; }
.kind-subscribe { --colour: var(--subscribe); }
.kind-unsubscribe { --colour: var(--unsubscribe); }
.kind-advertise { --colour: var(--advertise); }
.kind-unadvertise { --colour: var(--unadvertise); }
.kind-update { --colour: var(--update); }
.kind-other { --colour: var(--other); }
.failed { --colour: var(--bad); }
.p50 { --colour: var(--p50); }
.p99 { --colour: var(--p99); }
.usual { --colour: var(--accent); }
.seldom { --colour: var(--soft); }
.middle { --colour: var(--ink); }
.whisker { --colour: var(--base); }
.plot path, .plot .usual, .plot .seldom, .plot .middle { fill: var(--colour); }
.plot path.line {
  fill: none; stroke: var(--colour); stroke-width: 2px; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; stroke-linecap: round;
}
.plot path.dot { stroke-width: 6px; }
.plot .whisker { stroke: var(--colour); stroke-width: 2px; }
.plot .middle { stroke: var(--card); stroke-width: 2px; }
.plot .bar { fill: var(--accent); }
.meter { border-radius: 2px; background: var(--grid); }
.meter rect { fill: var(--colour, var(--accent)); }
.meter.open { --colour: var(--other); }
.beside { display: grid; gap: 8px 36px; grid-template-columns: minmax(0, 1fr); }
.side-by-side {
  display: grid; gap: 20px 36px; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr));
}
.side-by-side:not(:first-child) { margin-top: 18px; }
figure { margin: 0; min-width: 0; }
figcaption { margin-bottom: 14px; }
figcaption p { font-size: 13px; color: var(--muted); }
.hot { margin: 6px 0 0; padding: 0; display: grid; gap: 12px; }
.hot + h3, .more + h3 { margin-top: 18px; }
.hot .meter { height: 6px; }
.hot li { list-style: none; }
.hot-head { display: flex; flex-wrap: wrap; gap: 0 5px; }
.hot-head .muted { margin-left: auto; font-size: 13px; }
.hot-text { margin-bottom: 5px; }
.heat:not(:last-child) { margin-bottom: 14px; }
.heat-row {
  display: grid; gap: 2px 16px; padding: 10px 0; border-top: 1px solid var(--grid);
  grid-template-columns: 130px minmax(0, 1fr) 90px;
}
.heat-name { font-weight: 500; line-height: 28px; }
.heat-open { font-size: 13px; }
.strip { border-radius: 4px; }
.track { fill: var(--grid); }
.cell { fill: var(--accent); stroke: var(--card); stroke-width: 1px; }
.cell:hover { stroke: var(--ink); }
.ends { display: grid; grid-template-columns: 1fr auto 1fr; gap: 0 16px; font-size: 12.5px; }
.ends { margin-top: 3px; color: var(--muted); }
.ends span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ends .told { color: var(--ink); white-space: normal; }
.ends .high { text-align: right; }
"""

_WIDTHS = """
@media (min-width: 1000px) {
  .beside { grid-template-columns: minmax(0, 1.25fr) minmax(0, 1fr); }
}
@media (max-width: 999px) {
  .tiles { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .histogram .minor { display: none; }
  .ends { grid-template-columns: 1fr 1fr; }
  .ends .told { grid-row: 2; grid-column: 1 / 3; }
}
@media (max-width: 800px) {
  .tick.minor { display: none; }
}
@media (max-width: 640px) {
  main { padding: 18px 12px 40px; }
  section { padding: 15px 14px 16px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
  .tiles > div { padding: 10px 12px; }
  .tiles .value { font-size: 21px; }
  .plot { margin-left: 48px; width: calc(100% - 54px); }
  .ranges { margin-left: 58px; width: calc(100% - 68px); }
  th, td { padding-left: 8px; padding-right: 8px; }
  tbody th:first-child { max-width: 36vw; overflow: hidden; text-overflow: ellipsis; }
  .hot-head .muted { margin-left: 0; flex-basis: 100%; }
  .heat-row { grid-template-columns: minmax(0, 1fr) 90px; }
  .heat-name { line-height: inherit; }
  .heat-strip { grid-row: 2; grid-column: 1 / 3; }
}
@media print {
  @page { margin: 12mm; }
  body { background: none; font-size: 11px; print-color-adjust: exact; }
  body { -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: 10px 0; }
  .scroll { overflow: visible; background: none; }
  table, thead th { font-size: 10px; }
  code, pre { font-size: 9.5px; }
  th, td { padding: 2px 5px; }
  th.bar, td.bar { min-width: 90px; }
  tr, figure, .plot, .heat-row, .hot li, .tiles > div { break-inside: avoid; }
  h2, h3, .plot-title, .lead { break-after: avoid; }
  .text pre { max-height: none; overflow: visible; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
}
"""

STYLE = _COLOURS + _TEXT + _TABLES + _PLOTS + _WIDTHS
"""The whole style sheet. Colours of one hue are pairs: what begins is strong, what ends is pale."""
