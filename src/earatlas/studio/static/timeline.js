// The visible part and the selected part of a recording, and how the pointer changes them.
//
// A click moves the cursor, dragging selects, the wheel with Ctrl zooms and with Shift scrolls.

export const LEFT = 58; // CSS pixels left of the plots, for the ticks: --ticks in studio.css
const MIN_SECONDS = 0.05; // of the visible part
const MIN_SELECTION = 0.05; // seconds
const DRAG_PIXELS = 5; // a shorter movement is a click

export class Timeline {
  // changed() is called when the visible or the selected part changes.
  constructor(seconds, changed) {
    this.seconds = seconds;
    this.changed = changed;
    this.start = 0;
    this.end = seconds;
    this.selection = null; // { start, end }
  }

  get span() { return this.end - this.start; }

  get zoomed() { return this.span < this.seconds - 1e-6; }

  x(t, width) { return LEFT + ((t - this.start) / this.span) * (width - LEFT); }

  t(x, width) { return Math.max(0, Math.min(this.seconds, this.start + ((x - LEFT) / (width - LEFT)) * this.span)); }

  // Show the seconds from start to end, within the recording.
  show(start, end) {
    const span = Math.max(Math.min(end - start, this.seconds), Math.min(MIN_SECONDS, this.seconds));
    this.start = Math.max(0, Math.min(start, this.seconds - span));
    this.end = this.start + span;
    this.changed();
  }

  zoom(factor, at = (this.start + this.end) / 2) {
    const span = this.span / factor;
    const share = (at - this.start) / this.span;
    this.show(at - share * span, at + (1 - share) * span);
  }

  showAll() { this.show(0, this.seconds); }

  scroll(seconds) { this.show(this.start + seconds, this.end + seconds); }

  // Keep a playing cursor visible: the next page begins at it.
  follow(t) { if (this.zoomed && (t < this.start || t > this.end)) this.show(t, t + this.span); }

  select(from, to) {
    const [start, end] = [from, to].sort((a, b) => a - b).map((t) => Math.max(0, Math.min(this.seconds, t)));
    this.selection = end - start >= MIN_SELECTION ? { start, end } : null;
    this.changed();
  }

  clear() { this.selection = null; this.changed(); }

  // Listen to the pointer on an element whose canvases are the plots; seek(t) moves the cursor and
  // hover(event, t) gets the pointer, or null when it leaves.
  listen(root, { seek, hover }) {
    let held = null;
    const place = (event) => { const box = root.getBoundingClientRect(); return [event.clientX - box.left, box.width]; };
    root.addEventListener("pointerdown", (event) => {
      if (event.target.tagName !== "CANVAS" || event.button > 0) return;
      const [x, width] = place(event);
      held = { x, t: this.t(x, width), dragged: false };
      root.setPointerCapture(event.pointerId);
    });
    root.addEventListener("pointermove", (event) => {
      const [x, width] = place(event);
      hover(event, this.t(x, width));
      if (!held) return;
      held.dragged ||= Math.abs(x - held.x) > DRAG_PIXELS;
      if (held.dragged) this.select(held.t, this.t(x, width));
    });
    root.addEventListener("pointerup", () => { if (held && !held.dragged) seek(held.t); held = null; });
    root.addEventListener("pointercancel", () => { held = null; });
    root.addEventListener("pointerleave", () => hover(null, 0));
    root.addEventListener("wheel", (event) => {
      const [x, width] = place(event);
      const across = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), this.t(x, width));
      else if (this.zoomed && Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.scroll((across / width) * this.span);
      else return;
      event.preventDefault();
    }, { passive: false });
  }
}

const BLOCK = 256; // samples per entry of the coarse level

// Smallest and largest samples of intervals of a channel, quickly for any zoom.
export class Peaks {
  constructor(samples, rate) {
    this.samples = samples;
    this.rate = rate;
    const n = Math.ceil(samples.length / BLOCK);
    this.low = new Float32Array(n);
    this.high = new Float32Array(n);
    for (let i = 0; i < n; i += 1) [this.low[i], this.high[i]] = extremes(samples, i * BLOCK, Math.min((i + 1) * BLOCK, samples.length));
  }

  // [smallest, largest] from second `start` to `end`.
  between(start, end) {
    const first = Math.max(0, Math.floor(start * this.rate));
    const last = Math.min(this.samples.length, Math.max(first + 1, Math.ceil(end * this.rate)));
    if (last - first < 2 * BLOCK) return extremes(this.samples, first, last);
    const [a, b] = [Math.floor(first / BLOCK), Math.ceil(last / BLOCK)];
    return [extremes(this.low, a, b)[0], extremes(this.high, a, b)[1]];
  }
}

function extremes(values, from, to) {
  let low = Infinity, high = -Infinity;
  for (let i = from; i < to; i += 1) { if (values[i] < low) low = values[i]; if (values[i] > high) high = values[i]; }
  return low > high ? [0, 0] : [low, high];
}
