// Unpacking the numbers of the page: the reading half of analysis/report/numbers.py.

export async function unpackNumbers(text) {
  const packed = Uint8Array.from(atob(text.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = planes.length / 4;
  const words = new Uint32Array(size);
  for (let i = 0; i < size; i += 1) {
    words[i] = (planes[i] << 24) | (planes[size + i] << 16) | (planes[2 * size + i] << 8) | planes[3 * size + i];
  }
  return new Float32Array(words.buffer);
}
