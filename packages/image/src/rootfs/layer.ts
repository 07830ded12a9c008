/** One layer of a root file system: where its tar comes from. */

export interface RootfsLayer {
  /** Names it in errors: a digest, or what built it. */
  readonly name: string;
  /** The uncompressed tar. Ends normally only if every digest was right. */
  open(signal: AbortSignal): AsyncIterable<Buffer>;
  /**
   * Reads the stored bytes again and throws if they are not what their digest says: so a damaged blob is called that
   * and not by the accident of what its bytes looked like.
   */
  verify(signal: AbortSignal): Promise<void>;
}
