// What happens now: one stream of events, and polls of what the stream does not tell.
import {follow, getJson, Refused} from './api.js';

const POLL_MS = 2000, CACHE_MS = 1000, RETRY_MS = [500, 1000, 2000, 5000];

const sleep = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), {once: true});
});

export class Live {
  // onEvent(event) for each; onLink('live' | 'away' | 'token', message) when that changes; wants() → {model, worker, sequence}, what the
  // reader looks at.
  constructor({onEvent, onLink, wants}) {
    Object.assign(this, {onEvent, onLink, wants});
  }

  start() {
    this.stop();
    this.control = new AbortController();
    this.#run(this.control.signal);
  }

  stop() {
    this.control?.abort();
  }

  async #run(signal) {
    for (let failures = 0; !signal.aborted;) {
      const round = new AbortController();
      const both = AbortSignal.any([signal, round.signal]);
      try {
        const history = await getJson('/v1/history?limit=200', both);
        for (const revision of history.revisions) this.onEvent({event: 'revision', data: revision});
        this.#poll(both, POLL_MS, () => this.#pollModel(both));
        this.#poll(both, CACHE_MS, () => this.#pollCache(both));
        await follow(`/v1/watch?firings=true&snapshot=true&from=${history.revision + 1}`, (event) => {
          failures = 0;
          this.onEvent(event);
          this.onLink('live', '');
        }, both);
        this.onLink('away', 'the controller closed the stream');
      } catch (error) {
        if (signal.aborted) return;
        const refused = error instanceof Refused && (error.status === 401 || error.status === 403);
        this.onLink(refused ? 'token' : 'away', error.message);
        if (refused) return;
      } finally {
        round.abort();
      }
      await sleep(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)], signal);
    }
  }

  async #poll(signal, everyMs, ask) {
    while (!signal.aborted) {
      if (document.visibilityState === 'visible') await ask().catch(() => {});  // the stream says when the controller is away
      await sleep(everyMs, signal);
    }
  }

  async #pollModel(signal) {
    const status = await getJson('/v1/status', signal);
    this.onEvent({event: 'status', data: status});
    const {model} = this.wants();
    if (!model) return;
    const tiers = await getJson(`/v1/tiers?model=${encodeURIComponent(model)}`, signal);
    this.onEvent({event: 'model', data: {...tiers, unix_seconds: status.unix_seconds}});
  }

  async #pollCache(signal) {
    const {worker, sequence} = this.wants();
    if (!worker) return;
    try {
      const cache = await getJson(`/v1/cache?worker=${encodeURIComponent(worker)}&sequence=${sequence || 0}`, signal);
      this.onEvent({event: 'cache', data: cache});
    } catch (error) {
      if (error instanceof Refused) this.onEvent({event: 'silent', data: {worker}});
    }
  }
}
