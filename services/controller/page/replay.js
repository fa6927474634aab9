// Recordings: events as JSON, one a line, as `striactl watch --record` (or `-o json`) writes them and as this page saves them.
import {apply, emptyState} from './store.js';

// Throws what is wrong, with the line's number.
export function parseRecording(text) {
  const events = [], trial = emptyState();
  let time = 0;
  const lines = text.split('\n');
  lines.forEach((line, i) => {
    if (line.trim() === '') return;
    let entry;
    try {
      entry = JSON.parse(line);
      apply(trial, entry);
    } catch {
      if (i > 0 && i === lines.length - 1) return;  // cut off while it was being written
      throw new Error(`line ${i + 1} is no event of a controller`);
    }
    // Revisions told out of the record are older than what happened while it was made.
    time = Math.max(time, entry.data.unix_seconds ?? time);
    events.push({...entry, time});
  });
  if (events.length === 0) throw new Error('no event in it');
  const started = events.find((entry) => entry.event !== 'revision')?.time ?? events[0].time;
  for (const entry of events) entry.time = Math.max(entry.time, started);
  return events;
}

export const recordingText = (events) => events.map((entry) => JSON.stringify(entry) + '\n').join('');

export class Player {
  // onState(state) after every change of what is shown.
  constructor(events, onState) {
    this.events = events;
    this.onState = onState;
    this.begin = events[0].time;
    this.end = events.at(-1).time;
    this.speed = 1;
    this.playing = false;
    this.seek(this.begin);
  }

  get time() {
    if (!this.playing) return this.at;
    return Math.min(this.end, this.at + ((performance.now() - this.startedMs) / 1000) * this.speed);
  }

  // Shows what was at that time. Backwards everything is told again from the start.
  seek(time) {
    if (!this.state || time < this.time) {
      this.state = emptyState();
      this.next = 0;
    }
    this.#tell(time);
    this.at = time;
    this.startedMs = performance.now();
  }

  setSpeed(speed) {
    this.seek(this.time);
    this.speed = speed;
  }

  setPlaying(playing) {
    if (playing && this.time >= this.end) this.seek(this.begin);
    this.at = this.time;
    this.startedMs = performance.now();
    this.playing = playing;
  }

  // Called on every frame.
  tick() {
    if (!this.playing) return;
    const now = this.time;
    this.#tell(now);
    if (now >= this.end) {
      this.playing = false;
      this.at = this.end;
    }
  }

  #tell(time) {
    for (; this.next < this.events.length && this.events[this.next].time <= time; ++this.next) apply(this.state, this.events[this.next]);
    this.state.time = time;
    this.onState(this.state);
  }
}
