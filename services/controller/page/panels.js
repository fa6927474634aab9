// Figures, workers, firings and revisions: text and small tables.
import {ago, BITS, bytes, clock, day, h, NAMES, number, reading, show, svg, WIDTHS} from './dom.js';
import {ringFill, totals} from './memory.js';

const STRIP_SECONDS = 60, LISTED_FIRINGS = 5;

const figure = (name, value, note) => h('div', {class: 'figure'}, h('h3', {}, name), h('p', {class: 'value'}, value), h('p', {class: 'note'}, note));

export function showFigures(parent, state, model, cache, now) {
  const bits = model?.average_bits;
  const live = (cache?.sequences ?? []).filter((sequence) => !sequence.prefilling && sequence.tokens > 0);
  const t = totals(live), saved = t.fp16 > 0 ? 1 - t.held / t.fp16 : null;
  const last = model?.last_firing ? now - model.last_firing : model?.last_firing_seconds_ago;
  const workers = [...state.workers.values()], synced = workers.filter((worker) => worker.state === 'SYNCED').length;
  const facts = [
    ['Average bits', bits ? ((bits.keys + bits.values) / 2).toFixed(2) : '–', bits ? `keys ${bits.keys.toFixed(2)}, values ${bits.values.toFixed(2)}; next pages` : 'of the next pages'],
    ['Memory saved', saved == null ? '–' : `${Math.round(saved * 100)} %`.replace('-', '−'), saved == null ? 'no live sequence' : `${bytes(t.held)} held, ${bytes(t.fp16)} in FP16`],
    ['τ', state.settings.tau == null ? '–' : reading(state.settings.tau), state.settings.policy === 'budget' ? 'policy: budget' : 'nats a layer may cost'],
    ['Firings', model ? number(model.firings) : '–', model ? `last ${ago(last)}` : ''],
    ['Width changes', model ? number(model.flips) : '–', model ? `epoch ${model.epoch}` : ''],
    ['Workers in step', `${synced} of ${workers.length}`, synced === workers.length ? 'all apply the newest widths' : 'see the table'],
  ];
  show(parent, facts, () => facts.map((fact) => figure(...fact)));
}

const SYNC = {SYNCED: ['✓', 'Synced'], STALE: ['!', 'Stale'], NEVER: ['○', 'Never acknowledged']};

export function showWorkers(parent, state) {
  const rows = [...state.workers.values()].map((worker) => {
    const held = state.caches.get(worker.worker)?.sequences ?? [];
    const ring = held.filter((sequence) => !sequence.prefilling && sequence.tokens > 0);
    const fill = ring.length === 0 ? '–' : `${ringFill(ring)} of 64`;
    return [worker.worker, worker.state, number(worker.epoch_applied), number(worker.epoch_sent), fill,
      ago(worker.heard_seconds_ago), number(worker.frames), number(worker.frames_lost), number(worker.restarts)];
  });
  const heads = ['Worker', 'Sync', 'Applied', 'Sent', 'Ring fill', 'Heard', 'Frames', 'Lost', 'Restarts'];
  show(parent, rows, () => rows.length === 0 ? [h('p', {class: 'empty'}, 'No worker has said hello.')] : [
    h('table', {}, h('thead', {}, h('tr', {}, ...heads.map((head) => h('th', {scope: 'col'}, head)))),
      h('tbody', {}, ...rows.map(([name, sync, ...rest]) => h('tr', {},
        h('th', {scope: 'row'}, name),
        h('td', {}, h('span', {class: `badge ${sync}`}, h('span', {'aria-hidden': 'true'}, SYNC[sync][0]), ` ${SYNC[sync][1]}`)),
        ...rest.map((value) => h('td', {}, value))))))]);
}

export function showFirings(parent, state, now) {
  const recent = state.firings.filter((firing) => now - firing.unix_seconds < STRIP_SECONDS);
  const marks = recent.map((firing) => Math.round((1 - (now - firing.unix_seconds) / STRIP_SECONDS) * 1000) / 10);
  const listed = state.firings.slice(-LISTED_FIRINGS).reverse();
  show(parent, [marks, listed.map((firing) => [firing.worker, firing.number])], () => [
    svg('svg', {class: 'strip', height: 26, width: '100%', role: 'img', 'aria-label': `${recent.length} firings in the last minute`},
      ...marks.map((at) => svg('line', {x1: `${at}%`, x2: `${at}%`, y1: 3, y2: 23}))),
    h('p', {class: 'strip-ends'}, h('span', {}, 'a minute ago'), h('span', {}, 'now')),
    listed.length === 0 ? h('p', {class: 'empty'}, `None seen yet: ${state.settings.canary_rate > 0 ? `about one in ${Math.round(1 / state.settings.canary_rate)} decode steps fires` : 'the canary is off'}.`)
      : h('ul', {class: 'firings'}, ...listed.map((firing) => h('li', {},
        h('time', {}, clock(firing.unix_seconds)),
        h('span', {}, `${firing.worker}, step ${number(firing.step)}`),
        h('span', {class: 'note'}, `${firing.sequences} sequence${firing.sequences === 1 ? '' : 's'}, ${number(firing.tokens)} tokens, ${(firing.cost_seconds * 1000).toFixed(2)} ms`)))),
  ]);
}

const say = (value) => (value == null ? 'none' : typeof value === 'object' ? Object.entries(value).map(([part, bounds]) => `${part} ${[bounds].flat().join('…')}`).join(', ') : String(value));

function changes(revision) {
  return revision.changed.map((name) => {
    const [field, layer] = name.split('.');
    const of = (settings) => (layer === undefined ? settings[field] : settings[field]?.[layer]);
    return `${name} ${say(of(revision.before))} → ${say(of(revision.after))}`;
  });
}

export function showRevisions(parent, state) {
  const newest = [...state.revisions.values()].sort((a, b) => b.revision - a.revision).slice(0, 50);
  show(parent, newest.map((revision) => revision.revision), () => newest.length === 0 ? [h('li', {class: 'empty'}, 'Nobody has changed anything: all settings are the defaults.')]
    : newest.map((revision) => h('li', {},
      h('p', {class: 'what'}, h('span', {class: 'number'}, `#${revision.revision}`), ...changes(revision).map((change) => h('code', {}, change))),
      h('p', {class: 'why'}, revision.reason || 'no reason given'),
      h('p', {class: 'note'}, `${revision.who || 'somebody'}, `, h('time', {datetime: new Date(revision.unix_seconds * 1000).toISOString()}, day(revision.unix_seconds))))));
}

export function showChips(parent, state, model) {
  const chips = [`revision ${state.revision}`];
  if (state.settings.frozen) chips.push('FROZEN');
  if (state.settings.recommend_only) chips.push('recommend only');
  if (model?.phase && model.phase !== 'live') chips.push(model.phase);
  if (state.damage) chips.push(`state file: ${state.damage}`);
  if (state.lost) chips.push(`${state.lost} events lost`);
  show(parent, chips, () => chips.map((chip) => h('span', {class: chip.startsWith('rev') ? 'chip' : 'chip loud'}, chip)));
}

export const widthLegend = () => WIDTHS.map((width) => h('span', {}, h('i', {class: `swatch ${width}`}), NAMES[width] === 'FP16' ? 'FP16' : `INT${BITS[width]}`));
