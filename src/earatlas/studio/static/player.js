// Synchronized playback of the mixture and all sources, each with its own gain.
//
// All sounds start together and stay synchronous. Solo, mute and A/B only change gains, so switching
// is exact to the sample and nothing is lost or repeated.

const FADE = 0.004; // seconds of a fade, without which a switch would click

export class Player {
  constructor(rate) {
    this.rate = rate;
    this.context = null;
    this.buffers = []; // the mixture first, then the sources
    this.solo = new Set();
    this.mute = new Set();
    this.mixed = false; // A/B: whether the mixture is played
    this.offset = 0;
    this.playing = false;
    this.volume = 1;
    this.loop = null; // { start, end } in seconds, or null
    this.changed = () => {};
  }

  get seconds() { return this.buffers.length ? this.buffers[0].duration : 0; }

  async load(addresses) {
    this.context ??= new AudioContext({ sampleRate: this.rate });
    const sounds = await Promise.all(addresses.map(async (address) => {
      const response = await fetch(address);
      if (!response.ok) throw new Error("A sound could not be loaded.");
      return this.context.decodeAudioData(await response.arrayBuffer());
    }));
    this.stop();
    this.buffers = sounds;
    this.scale = Math.min(1, 0.99 / Math.max(...sounds.map(peak), 1e-9));
  }

  // The gain of each buffer: 0 or 1.
  gains() {
    return this.buffers.map((_, i) => {
      if (i === 0) return this.mixed || this.buffers.length === 1 ? 1 : 0;
      if (this.mixed) return 0;
      return (this.solo.size ? this.solo.has(i) : !this.mute.has(i)) ? 1 : 0;
    });
  }

  // The audio graph for playback and for `render`.
  graph(context, when, offset, loop = null) {
    const master = new GainNode(context, { gain: this.scale * this.volume });
    master.connect(context.destination);
    const parts = this.buffers.map((buffer, i) => {
      const source = new AudioBufferSourceNode(context, { buffer });
      const gain = new GainNode(context, { gain: this.gains()[i] });
      if (loop) Object.assign(source, { loop: true, loopStart: loop.start, loopEnd: loop.end });
      source.connect(gain).connect(master);
      source.start(when, offset);
      return { source, gain };
    });
    return { master, parts };
  }

  async play() {
    if (this.playing || !this.buffers.length) return;
    await this.context.resume();
    if (this.offset >= this.seconds - 0.01) this.offset = 0;
    if (this.loop && (this.offset < this.loop.start || this.offset >= this.loop.end - 0.01)) this.offset = this.loop.start;
    const when = this.context.currentTime + 0.02;
    this.running = this.graph(this.context, when, this.offset, this.loop);
    this.began = when - this.offset;
    this.playing = true;
    const last = this.running;
    last.parts[0].source.onended = () => { if (this.running === last && this.playing) this.stop(); };
    this.changed();
  }

  pause() {
    if (!this.playing) return;
    this.offset = this.position();
    this.silence();
    this.changed();
  }

  stop() {
    this.offset = 0;
    this.silence();
    this.changed();
  }

  silence() {
    this.playing = false;
    for (const { source } of this.running?.parts ?? []) { source.onended = null; source.stop(); }
    this.running?.master.disconnect();
    this.running = null;
  }

  toggle() { return this.playing ? this.pause() : this.play(); }

  seek(seconds) {
    const wasPlaying = this.playing;
    if (wasPlaying) this.silence();
    this.offset = Math.max(0, Math.min(seconds, this.seconds));
    if (wasPlaying) this.play();
    this.changed();
  }

  position() {
    if (!this.playing) return this.offset;
    const t = this.context.currentTime - this.began;
    if (this.loop && t > this.loop.end) return this.loop.start + ((t - this.loop.start) % (this.loop.end - this.loop.start));
    return Math.max(0, Math.min(t, this.seconds));
  }

  // Repeat a part of the sounds, exact to the sample; null plays on.
  setLoop(loop) {
    const at = this.position(), { playing } = this;
    if (playing) this.silence();
    this.offset = at;
    this.loop = loop;
    if (playing) this.play();
    this.changed();
  }

  setVolume(volume) {
    this.volume = volume;
    this.running?.master.gain.setTargetAtTime(this.scale * volume, this.context.currentTime, FADE);
    this.changed();
  }

  select({ solo = this.solo, mute = this.mute, mixed = this.mixed } = {}) {
    Object.assign(this, { solo, mute, mixed });
    const now = this.context?.currentTime ?? 0;
    const gains = this.gains();
    for (const [i, { gain }] of (this.running?.parts ?? []).entries()) {
      gain.gain.cancelScheduledValues(now);
      gain.gain.setValueAtTime(gain.gain.value, now);
      gain.gain.linearRampToValueAtTime(gains[i], now + FADE);
    }
    this.changed();
  }

  // Render the present selection from beginning to end.
  async render() {
    const context = new OfflineAudioContext(2, this.buffers[0].length, this.rate);
    this.graph(context, 0, 0);
    return context.startRendering();
  }

  close() {
    this.changed = () => {};
    this.silence();
    this.context?.close();
    this.context = null;
  }
}

function peak(buffer) {
  let largest = 0;
  for (let c = 0; c < buffer.numberOfChannels; c += 1) {
    for (const value of buffer.getChannelData(c)) if (Math.abs(value) > largest) largest = Math.abs(value);
  }
  return largest;
}

// Encode samples as a WAV file with 16 bits.
export function wavFile(channels, rate) {
  const length = channels[0].length, count = channels.length;
  const view = new DataView(new ArrayBuffer(44 + 2 * count * length));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF"); view.setUint32(4, 36 + 2 * count * length, true); text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, count, true);
  view.setUint32(24, rate, true); view.setUint32(28, 2 * count * rate, true);
  view.setUint16(32, 2 * count, true); view.setUint16(34, 16, true);
  text(36, "data"); view.setUint32(40, 2 * count * length, true);
  for (let i = 0, at = 44; i < length; i += 1) {
    for (const channel of channels) { view.setInt16(at, Math.max(-1, Math.min(1, channel[i])) * 32767, true); at += 2; }
  }
  return new Blob([view], { type: "audio/wav" });
}
