export { GuestChannel, MAX_OPEN_BYTES, openChannel, PROTOCOL_VERSION, type ChannelOptions } from "./channel.ts";
export { ChannelStream, WINDOW_BYTES } from "./channel-stream.ts";
export { encodeFrame, FRAME_HEADER_BYTES, FRAME_TYPE, FrameReader, MAX_FRAME_PAYLOAD_BYTES, type Frame } from "./frame.ts";
export { GuestLink, type GuestLinkOptions, type GuestLinkState } from "./guest-link.ts";
export { toGuestFailure, type Welcome } from "./handshake.ts";
export { openTransport, type GuestEndpoint, type OpenVsock } from "./transport.ts";
