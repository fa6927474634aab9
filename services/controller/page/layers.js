// The layers: a column each, its three smoothed readings as bars against τ, and what its next pages are sealed at.
import {BITS, h, NAMES, number, reading, set, show, svg, WIDTHS} from './dom.js';

const READ = WIDTHS.slice(0, 3);
const LEFT = 44, RIGHT = 18, TOP = 14, PLOT = 210, GAP = 8, CELL = 24, BOTTOM = 20;
const KEYS = TOP + PLOT + GAP, VALUES = KEYS + CELL + 2, HEIGHT = VALUES + CELL + BOTTOM;
const MIN_COLUMN = 25, MAX_COLUMN = 64;

const y = (scale, value) => {
  const share = (Math.log10(value) - scale.low) / (scale.high - scale.low);
  return TOP + PLOT * (1 - Math.min(1, Math.max(0, share)));
};

// Whole decades that hold every reading and τ with room around it. Grows when it must and never shrinks, so that bars stand still.
function fitScale(scale, layers, tau) {
  const values = layers.flatMap((layer) => [layer.ema, layer.raw].filter(Boolean).flatMap((read) => READ.map((width) => read[width])));
  const seen = [tau / 20, tau * 5, ...values].filter((value) => value > 0);
  return {
    low: Math.max(-9, Math.min(scale?.low ?? 0, Math.floor(Math.log10(Math.min(...seen))))),
    high: Math.max(scale?.high ?? -9, Math.ceil(Math.log10(Math.max(...seen)))),
  };
}

const powerOfTen = (power) => (power === 0 ? '1' : `10${[...String(power)].map((digit) => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(digit)]).join('')}`);

function describe(layer, tau) {
  const readings = layer.ema
    ? READ.map((width) => `${NAMES[width]} ${reading(layer.ema[width])}${layer.ema[width] < tau ? ' under τ' : ''}`).join(', ')
    : 'no reading yet';
  return `Layer ${layer.layer}: keys ${NAMES[layer.keys]}, values ${NAMES[layer.values]}. ${readings}`;
}

class Column {
  constructor(chart, index) {
    this.bars = READ.map((width) => svg('rect', {class: `bar ${width}`}));
    this.ticks = READ.map(() => svg('line', {class: 'raw'}));
    this.cells = ['keys', 'values'].map((part) => ({part, box: svg('rect', {rx: 3}), text: svg('text', {class: 'bits'})}));
    this.number = svg('text', {class: 'axis', y: HEIGHT - 6}, String(index));
    this.back = svg('rect', {class: 'back', y: TOP - 8, height: HEIGHT - TOP + 6, rx: 4});
    this.node = svg('g', {role: 'option', id: `layer-${index}`, tabindex: -1},
      this.back, ...this.bars, ...this.ticks, ...this.cells.flatMap((cell) => [cell.box, cell.text]), this.number);
    this.node.addEventListener('focus', () => chart.select(index));
    this.node.addEventListener('click', () => this.node.focus());
  }

  place(x, width) {
    const bar = Math.min(12, (width - 7) / 3), left = x + (width - 3 * bar) / 2;
    set(this.back, {x: x + 0.5, width: width - 1});
    this.bars.forEach((rect, i) => set(rect, {x: left + i * bar + 0.5, width: bar - 1}));
    this.ticks.forEach((line, i) => set(line, {x1: left + i * bar - 0.5, x2: left + (i + 1) * bar + 0.5}));
    this.cells.forEach(({box, text}, i) => {
      set(box, {x: x + 1.5, width: width - 3, y: i ? VALUES : KEYS, height: CELL});
      set(text, {x: x + width / 2, y: (i ? VALUES : KEYS) + CELL / 2 + 4});
    });
    set(this.number, {x: x + width / 2});
  }

  show(layer, scale, tau, now) {
    const bottom = TOP + PLOT;
    READ.forEach((width, i) => {
      const value = layer.ema?.[width];
      const top = value > 0 ? y(scale, value) : bottom;
      set(this.bars[i], {y: top, height: Math.max(value == null ? 0 : 1, bottom - top), class: `bar ${width} ${value < tau ? 'passes' : 'fails'}`});
      const raw = layer.raw?.[width];
      const at = raw > 0 ? y(scale, raw) : -10;
      set(this.ticks[i], {y1: at, y2: at, class: now - layer.fired < 3 ? 'raw fresh' : 'raw'});
    });
    for (const {part, box, text} of this.cells) {
      set(box, {class: `cell ${layer[part]}`});
      set(text, {class: `bits on-${layer[part]}`});
      text.textContent = BITS[layer[part]];
    }
    set(this.node, {class: now - layer.fired < 1 ? 'column fired' : 'column', 'aria-label': describe(layer, tau)});
  }
}

export class LayerChart {
  constructor(parent, detail) {
    Object.assign(this, {parent, detail, columns: [], selected: 0});
    this.band = svg('rect', {class: 'band', x: LEFT});
    this.grid = svg('g', {'aria-hidden': 'true'});
    this.tau = svg('g', {'aria-hidden': 'true'}, svg('line', {class: 'tau', x1: LEFT}), svg('text', {class: 'tau-text'}, 'τ'));
    this.rows = svg('g', {'aria-hidden': 'true'},
      svg('text', {class: 'row', x: LEFT - 6, y: KEYS + 16}, 'keys'), svg('text', {class: 'row', x: LEFT - 6, y: VALUES + 16}, 'values'));
    this.marks = svg('g', {});
    this.root = svg('svg', {role: 'listbox', 'aria-label': 'Layers', 'aria-orientation': 'horizontal', height: HEIGHT},
      this.band, this.grid, this.marks, this.tau, this.rows);
    this.root.addEventListener('keydown', (event) => this.#onKey(event));
    this.empty = h('p', {class: 'empty'}, 'No model yet: a worker says what it serves when it connects.');
    parent.replaceChildren(this.empty, this.root);
    new ResizeObserver(() => this.again?.()).observe(parent);
  }

  select(index) {
    this.columns[this.selected]?.node.setAttribute('tabindex', '-1');
    this.selected = index;
    this.columns[index]?.node.setAttribute('tabindex', '0');
    this.again?.();
  }

  show(model, settings, now) {
    this.again = () => this.#draw(model, settings, now);
    this.again();
  }

  #draw(model, settings, now) {
    const layers = model?.layers ?? [], tau = settings.tau ?? 0.022;
    this.empty.hidden = layers.length > 0;
    this.root.toggleAttribute('hidden', layers.length === 0);
    if (layers.length === 0) return show(this.detail, null, () => []);
    if (this.columns.length !== layers.length || this.model !== model.model) {
      this.model = model.model;
      this.scale = undefined;
      this.columns = layers.map((layer, i) => new Column(this, i));
      this.marks.replaceChildren(...this.columns.map((column) => column.node));
      this.selected = Math.min(this.selected, layers.length - 1);
      this.columns[this.selected].node.setAttribute('tabindex', '0');
      this.width = undefined;
    }
    const room = this.parent.clientWidth - LEFT - RIGHT;
    const column = Math.min(MAX_COLUMN, Math.max(MIN_COLUMN, Math.floor(room / layers.length)));
    const width = LEFT + RIGHT + column * layers.length;
    this.scale = fitScale(this.scale, layers, tau);
    if (this.width !== width) {
      this.width = width;
      set(this.root, {width, viewBox: `0 0 ${width} ${HEIGHT}`});
      this.columns.forEach((each, i) => each.place(LEFT + i * column, column));
    }
    this.#axis(width, tau, settings);
    this.columns.forEach((each, i) => {
      each.show(layers[i], this.scale, tau, now);
      each.node.setAttribute('aria-selected', String(i === this.selected));
    });
    this.#details(layers[this.selected], settings, tau);
  }

  #axis(width, tau, settings) {
    const decades = Array.from({length: this.scale.high - this.scale.low + 1}, (_, i) => this.scale.low + i);
    show(this.grid, [width, decades], () => decades.flatMap((power) => {
      const at = y(this.scale, 10 ** power);
      return [svg('line', {class: 'grid', x1: LEFT, x2: width - RIGHT, y1: at, y2: at}),
        svg('text', {class: 'axis end', x: LEFT - 6, y: at + 4}, powerOfTen(power))];
    }));
    const at = y(this.scale, tau);
    const top = y(this.scale, tau * (1 + (settings.promote_band ?? 0))), bottom = y(this.scale, tau * (1 - (settings.hysteresis ?? 0)));
    set(this.band, {y: top, height: bottom - top, width: width - LEFT - RIGHT});
    set(this.tau.firstChild, {x2: width - RIGHT, y1: at, y2: at});
    set(this.tau.lastChild, {x: width - RIGHT + 6, y: at + 4});
  }

  #details(layer, settings, tau) {
    const pin = settings.pins?.[layer.layer];
    const readings = layer.ema ? READ.map((width) => [NAMES[width], `${reading(layer.ema[width])} = ${reading(layer.ema[width] / tau)} τ`]) : [['Readings', 'none yet']];
    const differs = layer.recommended && (layer.recommended.keys !== layer.keys || layer.recommended.values !== layer.values);
    const rows = [
      ['Layer', String(layer.layer)],
      ['Keys', NAMES[layer.keys]],
      ['Values', NAMES[layer.values]],
      ...readings,
      ['Changes', number(layer.flips)],
      ...(layer.guard_plain ? [['Guard', NAMES[layer.guard_plain]]] : []),
      ...(differs ? [['Recommended', `${NAMES[layer.recommended.keys]} / ${NAMES[layer.recommended.values]}`]] : []),
      ...(layer.ema_latent ? [['Latent', READ.map((width) => reading(layer.ema_latent[width])).join(' · ')]] : []),
      ...(pin ? [['Pinned', Object.entries(pin).map(([part, bounds]) => `${part} ${[bounds].flat().join('…')}`).join(', ')]] : []),
    ];
    show(this.detail, rows, () => h('dl', {class: 'facts'}, ...rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))));
  }

  #onKey(event) {
    const steps = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity};
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = Math.min(this.columns.length - 1, Math.max(0, this.selected + steps[event.key]));
    this.columns[next].node.focus();
    this.columns[next].node.scrollIntoView({block: 'nearest', inline: 'nearest'});
  }
}
