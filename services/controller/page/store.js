// All that the page shows, made of events alone. A live controller and a recording feed the same function, so a replay shows what
// was seen. Events are those of /v1/watch, and what the page asked for meanwhile: `status`, `model` (/v1/tiers), `cache` (/v1/cache),
// `silent` (no answer to that).
import {widthOfBits} from './dom.js';

const KEPT_FIRINGS = 200;

export const emptyState = () => ({
  time: 0,              // unix seconds of the newest event
  revision: 0,
  settings: {},
  models: new Map(),    // fingerprint → /v1/tiers, its layers with `raw` and `fired` of their last firing
  workers: new Map(),   // name → its entry of /v1/status
  revisions: new Map(), // number → revision
  firings: [],          // newest last
  caches: new Map(),    // worker → newest /v1/cache
  pages: null,          // newest pages seen of a sequence: {worker, sequence, layers, held, epoch, live}
});

function modelOf(state, fingerprint, name) {
  if (!state.models.has(fingerprint)) {
    state.models.set(fingerprint, {model: fingerprint, model_name: name ?? fingerprint.slice(0, 12), layers: [], firings: 0, flips: 0});
  }
  return state.models.get(fingerprint);
}

function averageBits(layers) {
  const mean = (part) => layers.reduce((sum, layer) => sum + {int2: 2, int4: 4, int8: 8, fp16: 16}[layer[part]], 0) / layers.length;
  return layers.length === 0 ? null : {keys: mean('keys'), values: mean('values')};
}

const handlers = {
  snapshot(state, data) {
    state.settings = data.settings;
    handlers.status(state, data.status);
    for (const model of data.tiers) handlers.model(state, model);
  },

  status(state, data) {
    state.revision = Math.max(state.revision, data.revision);
    state.workers = new Map(data.workers.map((worker) => [worker.worker, worker]));
    state.damage = data.state_file?.damage ?? data.state_file?.error ?? null;
    for (const seen of data.models) Object.assign(modelOf(state, seen.model, seen.model_name), seen);
  },

  model(state, data) {
    if (data.model === null) return;
    const before = modelOf(state, data.model).layers;
    const layers = data.layers.map((layer, i) => ({...layer, raw: before[i]?.raw, fired: before[i]?.fired}));
    state.models.set(data.model, {...data, layers});
    for (const name of ['tau', 'hysteresis', 'frozen', 'recommend_only']) if (name in data) state.settings[name] = data[name];
  },

  tiers(state, data) {
    const model = modelOf(state, data.model);
    model.epoch = data.epoch;
    model.layers = data.layers.map(([keys, values, plain, latent], i) => ({
      flips: 0, ema: null, ...model.layers[i], layer: i, recommended: undefined,  // told by the next poll
      keys: widthOfBits(keys), values: widthOfBits(values), guard_plain: widthOfBits(plain), guard_latent: widthOfBits(latent),
    }));
    for (const flip of data.flips) if (!flip.first) model.layers[flip.layer].flips += 1, model.flips += 1;
    model.average_bits = averageBits(model.layers);
    state.settings.frozen = data.frozen;
  },

  worker(state, data) {
    state.workers.set(data.worker, {...state.workers.get(data.worker), ...data});
  },

  revision(state, data) {
    state.revision = Math.max(state.revision, data.revision);
    state.revisions.set(data.revision, data);
    if (data.revision === state.revision) state.settings = {...data.after};
  },

  firing(state, data) {
    const model = modelOf(state, data.model);
    state.firings.push(data);
    if (state.firings.length > KEPT_FIRINGS) state.firings.shift();
    model.firings += 1;
    model.last_firing = data.unix_seconds;
    for (const {layer, ema, ema_latent} of data.layers ?? []) {
      if (layer in model.layers) Object.assign(model.layers[layer], {ema, ema_latent});
    }
    for (const read of data.readings) {
      if (read.layer in model.layers) Object.assign(model.layers[read.layer], {raw: read, fired: data.unix_seconds});
    }
  },

  cache(state, data) {
    state.caches.set(data.worker, data);
    const held = data.pages && data.sequences.find((sequence) => sequence.sequence === data.pages.sequence);
    if (held && !held.prefilling) {
      state.pages = {worker: data.worker, epoch: data.epoch, held, live: true, ...data.pages};
    } else if (state.pages?.worker === data.worker) {
      state.pages.live = data.sequences.some((sequence) => sequence.sequence === state.pages.sequence);
    }
  },

  silent(state, data) {  // the worker does not answer
    state.caches.delete(data.worker);
    if (state.pages?.worker === data.worker) state.pages.live = false;
  },

  lost(state, data) {
    state.lost = (state.lost ?? 0) + data.events;
  },
};

export function apply(state, {event, data}) {
  handlers[event]?.(state, data);
  if (data.unix_seconds > state.time) state.time = data.unix_seconds;
}
