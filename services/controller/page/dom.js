// Elements, and numbers as people read them. Text only ever goes in as text.

export const WIDTHS = ['int2', 'int4', 'int8', 'fp16'];
export const BITS = {int2: 2, int4: 4, int8: 8, fp16: 16};
export const NAMES = {int2: 'INT2', int4: 'INT4', int8: 'INT8', fp16: 'FP16'};
export const widthOfBits = (bits) => WIDTHS[Math.log2(bits) - 1];

export const $ = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
export const set = (element, attributes) => fill(element, attributes, []);

// Replaces what is inside only when it would look different, so that focus and selections survive.
export function show(parent, key, make) {
  const text = JSON.stringify(key);
  if (parent.shown === text) return;
  parent.shown = text;
  parent.replaceChildren(...[make()].flat());
}

export function choose(select, options, value) {
  show(select, options, () => options.map(([id, label]) => h('option', {value: id}, label)));
  if (select.value !== value) select.value = value;
}

export const number = (value) => (value == null ? '–' : value.toLocaleString('en'));
export const reading = (value) =>
  value == null ? '–' : value !== 0 && (value < 1e-3 || value >= 1e4) ? value.toExponential(1) : Number(value.toPrecision(3)).toString();

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  let unit = -1;
  do value /= 1024, ++unit; while (value >= 1000 && unit < 3);
  return `${value.toPrecision(3)} ${['KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

export function ago(seconds) {
  if (seconds == null) return 'never';
  if (seconds < 1.5) return 'now';
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

export const clock = (unixSeconds) => new Date(unixSeconds * 1000).toLocaleTimeString('en-GB');
export const day = (unixSeconds) => new Date(unixSeconds * 1000).toLocaleString('en-GB', {dateStyle: 'medium', timeStyle: 'medium'});
