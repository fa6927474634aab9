// What a worker's live sequences hold, as bars on one scale: the FP16 cache that they would need, the cache that they have, its rings.
import {bytes, h, NAMES, show, svg, WIDTHS} from './dom.js';

const sum = (sequences, get) => sequences.reduce((total, sequence) => total + get(sequence), 0);

// What all of these sequences hold together. Shared pages count in full, as in the FP16 figure.
export function totals(sequences) {
  const pages = Object.fromEntries(WIDTHS.map((width) => [width, sum(sequences, (s) => s.page_bytes[width])]));
  const held = sum(sequences, (s) => s.bytes), ring = sum(sequences, (s) => s.ring_bytes);
  const sealed = WIDTHS.reduce((total, width) => total + pages[width], 0);
  return {pages, held, ring, next: Math.max(0, held - ring - sealed), fp16: sum(sequences, (s) => s.fp16_bytes)};
}

// Valid keys in a ring, on average.
export const ringFill = (sequences) => Math.round(sum(sequences, (s) => s.ring_keys) / sequences.length);

function bar(name, total, parts, scale) {
  let at = 0;
  const boxes = parts.filter(([, value]) => value > 0).map(([kind, value, title]) => {
    const box = svg('rect', {class: `part ${kind}`, x: `${at}%`, width: `${(value / scale) * 100}%`, height: 22}, svg('title', {}, `${title}: ${bytes(value)}`));
    at += (value / scale) * 100;
    return box;
  });
  const words = parts.filter(([, value]) => value > 0).map(([, value, title]) => `${title} ${bytes(value)}`).join(', ');
  return h('div', {class: 'measure'},
    h('div', {class: 'measure-name'}, h('span', {}, name), h('strong', {}, bytes(total))),
    svg('svg', {class: 'bar-track', height: 22, width: '100%', role: 'img', 'aria-label': `${name}: ${bytes(total)}${parts.length > 1 ? ` (${words})` : ''}`}, ...boxes));
}

export function showMemory(parent, summary, cache) {
  const live = (cache?.sequences ?? []).filter((sequence) => !sequence.prefilling && sequence.tokens > 0);
  show(summary, [live.length, cache?.pool_bytes, cache?.used_bytes], () => [
    !cache ? 'No worker has told of its cache.'
      : `${live.length === 0 ? 'No live sequence' : live.length === 1 ? 'One live sequence' : `${live.length} live sequences`} on ${cache.worker}; pool ${bytes(cache.used_bytes)} of ${bytes(cache.pool_bytes)} in use.`]);
  show(parent, live.map((sequence) => [sequence.sequence, sequence.tokens, sequence.bytes, sequence.page_bytes]), () => {
    if (live.length === 0) return [h('p', {class: 'empty'}, 'What sequences hold appears here while they run.')];
    const t = totals(live), scale = Math.max(t.fp16, t.held);
    const parts = [...WIDTHS.map((width) => [width, t.pages[width], NAMES[width]]), ['next', t.next, 'taken for the next pages'], ['ring', t.ring, 'rings and tails']];
    return [
      bar('In FP16 it would be', t.fp16, [['baseline', t.fp16, 'FP16']], scale),
      bar('Cache held', t.held, parts, scale),
      bar(`of it rings and tails (${ringFill(live)} of 64 keys)`, t.ring, [['ring', t.ring, 'rings and tails']], scale),
      h('p', {class: 'legend'}, ...parts.filter(([, value]) => value > 0).map(([kind, value, title]) => h('span', {}, h('i', {class: `swatch ${kind}`}), `${title} ${bytes(value)}`))),
    ];
  });
}
