// The striped cache of one sequence: a row per layer, keys above values, a cell per page of 64 tokens, and the FP16 tail behind them.
import {h, NAMES, widthOfBits} from './dom.js';

const LEFT = 44, TOP = 4, BOTTOM = 18, PAGE_TOKENS = 64;

export class Stripes {
  constructor(parent, detail) {
    Object.assign(this, {parent, detail, at: {row: 0, page: 0}});
    this.canvas = h('canvas', {tabindex: 0, role: 'application', 'aria-roledescription': 'page map'});
    parent.replaceChildren(this.canvas);
    this.canvas.addEventListener('keydown', (event) => this.#onKey(event));
    this.canvas.addEventListener('pointermove', (event) => this.#onPointer(event));
    this.canvas.addEventListener('pointerleave', () => this.#moveTo(null));
    this.canvas.addEventListener('focus', () => this.#moveTo(this.last ?? {row: 0, page: 0}));
    this.canvas.addEventListener('blur', () => this.#moveTo(null));
    new ResizeObserver(() => this.#draw()).observe(parent);
    for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)']) {
      matchMedia(query).addEventListener('change', () => this.#draw());
    }
  }

  // pages: {layers: [{keys, values}], held: {tail, …}} or null
  show(pages, label) {
    this.pages = pages;
    this.canvas.setAttribute('aria-label', label);
    this.#draw();
  }

  #geometry() {
    const rows = this.pages.layers.length;
    const count = Math.max(1, ...this.pages.layers.map((layer) => layer.keys.length)) + 1;  // and the tail
    const row = Math.min(18, Math.max(6, Math.floor(440 / rows)));
    const cell = Math.min(26, Math.max(4, Math.floor((this.parent.clientWidth - LEFT - 6) / count)));
    return {rows, count, row, cell, half: Math.floor((row - 2) / 2), width: LEFT + cell * count + 6, height: TOP + row * rows + BOTTOM};
  }

  #draw() {
    this.canvas.hidden = !this.pages;
    if (!this.pages) return;
    const {rows, count, row, cell, half, width, height} = this.#geometry();
    const sharp = window.devicePixelRatio || 1;
    this.canvas.width = width * sharp;
    this.canvas.height = height * sharp;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    const draw = this.canvas.getContext('2d');
    draw.scale(sharp, sharp);
    draw.font = '11px system-ui, sans-serif';
    draw.textAlign = 'right';
    draw.fillStyle = colour('muted');
    const every = row >= 12 ? 1 : Math.ceil(12 / row);
    for (let layer = 0; layer < rows; layer += every) draw.fillText(layer, LEFT - 6, TOP + layer * row + Math.min(row, 13) - 2);
    const gap = cell > 7 ? 1 : 0;
    this.pages.layers.forEach((layer, i) => {
      [layer.keys, layer.values].forEach((bits, part) => {
        const top = TOP + i * row + part * half;
        bits.forEach((b, page) => {
          draw.fillStyle = colour(widthOfBits(b));
          draw.fillRect(LEFT + page * cell, top, cell - gap, half - (row >= 12 ? 1 : 0));
        });
        if (bits.length === 0 && this.pages.held.tail === 0) return;
        draw.fillStyle = colour('fp16');
        draw.globalAlpha = 0.35;
        draw.fillRect(LEFT + (count - 1) * cell, top, (cell - gap) * (this.pages.held.tail / PAGE_TOKENS), half - (row >= 12 ? 1 : 0));
        draw.globalAlpha = 1;
      });
    });
    draw.fillStyle = colour('muted');
    draw.textAlign = 'left';
    const step = Math.max(1, Math.ceil(64 / cell / 4) * 4);
    for (let page = 0; page < count - 1; page += step) draw.fillText(page * PAGE_TOKENS, LEFT + page * cell, height - 5);
    if (!this.cursor) return;
    draw.strokeStyle = colour('focus');
    draw.lineWidth = 2;
    draw.strokeRect(LEFT + this.cursor.page * cell - 1, TOP + Math.floor(this.cursor.row / 2) * row + (this.cursor.row % 2) * half - 1, cell + 1, half + 1);
  }

  #moveTo(cursor) {
    this.cursor = cursor;
    if (cursor) this.last = cursor;
    this.#draw();
    this.detail.textContent = cursor && this.pages ? this.#say(cursor) : '';
  }

  #say({row, page}) {
    const layer = Math.floor(row / 2), part = row % 2 ? 'values' : 'keys';
    const bits = this.pages.layers[layer]?.[part] ?? [];
    const first = page * PAGE_TOKENS;
    if (page < bits.length) return `Layer ${layer}, ${part}, page ${page} (tokens ${first}–${first + PAGE_TOKENS - 1}): ${NAMES[widthOfBits(bits[page])]}`;
    return bits.length === 0 && layer > 0 ? `Layer ${layer} reads the cache of an earlier layer` : `Layer ${layer}, ${part}: tail, ${this.pages.held.tail} tokens in FP16`;
  }

  #onPointer(event) {
    if (!this.pages) return;
    const {rows, count, row, cell, half} = this.#geometry();
    const box = this.canvas.getBoundingClientRect();
    const page = Math.floor((event.clientX - box.left - LEFT) / cell), down = event.clientY - box.top - TOP;
    const layer = Math.floor(down / row);
    if (page < 0 || page >= count || layer < 0 || layer >= rows) return this.#moveTo(null);
    this.#moveTo({row: 2 * layer + (down - layer * row >= half ? 1 : 0), page});
  }

  #onKey(event) {
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9]};
    if (!(event.key in steps) || !this.pages) return;
    event.preventDefault();
    const {rows, count} = this.#geometry(), [down, right] = steps[event.key], from = this.cursor ?? {row: 0, page: 0};
    const within = (value, end) => Math.min(end - 1, Math.max(0, value));
    this.#moveTo({row: within(from.row + down, 2 * rows), page: within(from.page + right, count)});
  }
}
