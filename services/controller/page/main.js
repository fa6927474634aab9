// Wires the sources (live or a recording), the store and the panels.
import {setToken, token} from './api.js';
import {$, choose, clock, h, number, show} from './dom.js';
import {LayerChart} from './layers.js';
import {Live} from './live.js';
import {showMemory} from './memory.js';
import {showChips, showFigures, showFirings, showRevisions, showWorkers, widthLegend} from './panels.js';
import {parseRecording, Player, recordingText} from './replay.js';
import {apply, emptyState} from './store.js';
import {Stripes} from './stripes.js';

const FRAME_MS = 100;

let state = emptyState(), player = null, recording = null, dirty = true, drawn = 0;
let seen = {time: 0, ms: 0};  // when the newest event came, by the controller's clock and by this page's
const wanted = {model: '', worker: '', sequence: ''};  // what the reader chose; '' follows

const chart = new LayerChart($('layers'), $('layer-detail'));
const stripes = new Stripes($('stripes'), $('page-detail'));
$('width-legend').replaceChildren(...widthLegend());

const model = () => state.models.get(wanted.model) ?? [...state.models.values()].find((each) => each.active) ?? [...state.models.values()][0];
const workers = () => [...state.workers.values()].filter((worker) => !model() || worker.model === undefined || worker.model === model().model);
const worker = () => (state.workers.has(wanted.worker) ? wanted.worker : workers()[0]?.worker ?? '');
const sequences = () => (state.caches.get(worker())?.sequences ?? []).filter((sequence) => !sequence.prefilling && sequence.tokens > 0);

// The one chosen while it lives, else the longest.
function sequence() {
  const all = sequences();
  if (all.some((each) => each.sequence === wanted.sequence)) return wanted.sequence;
  return all.reduce((best, each) => (best === null || each.tokens > best.tokens ? each : best), null)?.sequence ?? '';
}

const now = () => (player ? player.time : seen.time + (performance.now() - seen.ms) / 1000);

const live = new Live({
  onEvent(event) {
    if (event.event === 'snapshot') state.firings = [];
    apply(state, event);
    if (state.time > seen.time) seen = {time: state.time, ms: performance.now()};
    recording?.push(event);
    dirty = true;
  },
  onLink(link, message) {
    if (link === 'token') askForToken(token() === '' ? '' : message);
    $('link').className = link;
    $('link').textContent = {live: 'live', away: `no connection: ${message}`, token: 'token needed'}[link];
  },
  wants: () => ({model: model()?.model ?? '', worker: worker(), sequence: sequence()}),
});

function render() {
  const shown = model(), cache = state.caches.get(worker()), at = now();
  const models = [...state.models.values()].map((each) => [each.model, each.model_name]);
  $('model-choice').hidden = models.length < 2;
  choose($('model'), models, shown?.model ?? '');
  show($('model-name'), [models.length, shown?.model_name], () => [models.length < 2 && shown ? shown.model_name : '']);
  showChips($('chips'), state, shown);
  showFigures($('figures'), state, shown, cache, at);
  chart.show(shown, state.settings, at);
  choose($('worker'), workers().map((each) => [each.worker, each.worker]), worker());
  choose($('sequence'), [['', 'longest'], ...sequences().map((each) => [each.sequence, `${each.sequence} (${number(each.tokens)} tokens)`])],
    sequences().some((each) => each.sequence === wanted.sequence) ? wanted.sequence : '');
  const pages = state.pages?.worker === worker() ? state.pages : null;
  const said = !pages ? 'No sequence seen yet. While one runs, its pages appear here.'
    : `Sequence ${pages.sequence}: ${number(pages.held.tokens)} tokens in ${Math.floor(pages.held.tokens / 64)} pages a layer, keys above values, the FP16 tail at the right.${pages.live ? '' : ' It has ended; this is what was seen last.'}`;
  $('cache-summary').textContent = said;
  stripes.show(pages, `Widths of pages. ${said} Arrow keys move from page to page.`);
  showMemory($('memory'), $('memory-summary'), cache);
  showWorkers($('workers'), state);
  showFirings($('firings'), state, at);
  showRevisions($('revisions'), state);
}

function frame() {
  if (player) {
    player.tick();
    $('play').textContent = player.playing ? 'Pause' : 'Play';
    $('seek').value = player.end > player.begin ? (1000 * (player.time - player.begin)) / (player.end - player.begin) : 0;
    $('position').textContent = `${clock(player.time)} (${Math.round(player.time - player.begin)} of ${Math.round(player.end - player.begin)} s)`;
  }
  if (dirty && performance.now() - drawn >= FRAME_MS) {
    dirty = false;
    drawn = performance.now();
    render();
  }
  requestAnimationFrame(frame);
}
setInterval(() => (dirty = true), 1000);  // times grow old without events

function replay(events, name) {
  live.stop();
  state = emptyState();
  player = new Player(events, (shown) => {
    state = shown;
    dirty = true;
  });
  player.setPlaying(true);
  player.setSpeed(Number($('speed').value));
  $('player').hidden = false;
  $('recording-name').textContent = name;
  $('link').className = 'replay';
  $('link').textContent = 'replay';
}

function goLive() {
  player = null;
  state = emptyState();
  seen = {time: 0, ms: 0};
  $('player').hidden = true;
  live.start();
}

function askForToken(why) {
  $('token-error').textContent = why;
  if (!$('token-dialog').open) $('token-dialog').showModal();
}

function save(events) {
  const link = h('a', {href: URL.createObjectURL(new Blob([recordingText(events)], {type: 'application/x-ndjson'})), download: 'stria-recording.ndjson'});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

for (const name of ['model', 'worker', 'sequence']) {
  $(name).addEventListener('change', (event) => {
    wanted[name] = event.target.value;
    dirty = true;
  });
}
$('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  setToken($('token').value.trim());
  $('token').value = '';
  $('token-dialog').close();
  live.start();
});
$('token-button').addEventListener('click', () => askForToken(''));
$('token-dialog').addEventListener('close', () => ($('token-button').hidden = false));
$('open').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async (event) => {
  const [file] = event.target.files;
  event.target.value = '';
  if (!file) return;
  try {
    replay(parseRecording(await file.text()), file.name);
  } catch (error) {
    $('link').className = 'away';
    $('link').textContent = `${file.name}: ${error.message}`;
  }
});
$('play').addEventListener('click', () => player.setPlaying(!player.playing));
$('speed').addEventListener('change', (event) => player.setSpeed(Number(event.target.value)));
$('seek').addEventListener('input', (event) => player.seek(player.begin + (event.target.value / 1000) * (player.end - player.begin)));
$('back-to-live').addEventListener('click', goLive);
$('record').addEventListener('click', () => {
  if (recording) save(recording);
  recording = recording ? null : [];
  $('record').textContent = recording ? 'Stop and save' : 'Record';
  $('record').setAttribute('aria-pressed', String(recording !== null));
  if (recording) live.start();  // a stream begins with a snapshot, and so does a recording
});

live.start();
requestAnimationFrame(frame);
