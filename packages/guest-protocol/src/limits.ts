/** Bounds the guest agent keeps; its source has the same numbers. */

export const MAX_EXECS = 256;
/** Input bytes the agent holds for a process that does not read. */
export const MAX_STDIN_BYTES = 256 * 1024;
