// The controller's API. Where it wants a token, this tab's session storage holds it: never a cookie, an address or a log.

const KEY = 'stria-token';

export const token = () => sessionStorage.getItem(KEY) ?? '';
export const setToken = (value) => sessionStorage.setItem(KEY, value);

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, signal) {
  const headers = token() === '' ? {} : {Authorization: `Bearer ${token()}`};
  const response = await fetch(path, {headers, signal, cache: 'no-store', credentials: 'omit', redirect: 'error'});
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Refused(response.status, body?.error?.message ?? `HTTP ${response.status}`);
}

export const getJson = async (path, signal) => (await request(path, signal)).json();

// Whole server-sent events out of pieces that end anywhere. EventSource is no use here: it cannot send a token.
export class EventParser {
  #rest = '';

  feed(piece, onEvent) {
    const lines = (this.#rest + piece).split('\n');
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('event: ')) this.event = line.slice(7);
      else if (line.startsWith('data: ')) this.data = line.slice(6);
      else if (line === '' && this.event !== undefined && this.data !== undefined) {
        onEvent({event: this.event, data: JSON.parse(this.data)});
        this.event = this.data = undefined;
      }
    }
  }
}

// Calls back for every event until the stream ends or the signal aborts it.
export async function follow(path, onEvent, signal) {
  const response = await request(path, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    parser.feed(value, onEvent);
  }
}
