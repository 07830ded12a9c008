export type { OverlayRequest } from "./disk/overlay.ts";
export { createImageService, type ImageService, type ImageServiceOptions, type ReadyImage } from "./image-service.ts";
export { createKernelService, type KernelService, type KernelServiceOptions, type ReadyKernel } from "./kernel-service.ts";
export type { ImageLimits, ImageTools } from "./ports.ts";
export { buildIso9660, type IsoFile, type IsoVolume } from "./seed/iso9660.ts";
export { buildNoCloudFiles, type NoCloudFiles, type NoCloudInput, type SeedNetwork } from "./seed/no-cloud.ts";
export { buildNoCloudSeed, SEED_VOLUME_ID, writeNoCloudSeed, type WriteSeedOptions } from "./seed/write-seed.ts";
