/** Images and kernels as the engine looks at them: found, located, leased, in terms of `@fluxvm/image`'s two services. */
import type { Artifacts } from "@fluxvm/engine";
import type { ImageService, KernelService } from "@fluxvm/image";

export interface ArtifactSources {
  readonly images: Pick<ImageService, "resolve" | "lease" | "releaseLeases" | "leaseOwners">;
  readonly kernels: Pick<KernelService, "resolve" | "lease" | "releaseLeases" | "leaseOwners">;
}

export function createArtifacts({ images, kernels }: ArtifactSources): Artifacts {
  return {
    findImage: async (reference) => images.resolve(reference),
    findKernel: async (reference) => kernels.resolve(reference),
    async locateKernel(kernelId) {
      const { kernelPath, initrdPath } = kernels.resolve(kernelId);
      return { kernelPath, initrdPath };
    },
    lease(holder, held) {
      try {
        const image = held.imageId === undefined ? [] : [images.lease(held.imageId, holder)];
        const kernel = held.kernelId === undefined ? [] : [kernels.lease(held.kernelId, holder)];
        return [...image, ...kernel];
      } catch (error) {
        images.releaseLeases(holder); // nothing is held when one of the two went meanwhile; neither was committed
        kernels.releaseLeases(holder);
        throw error;
      }
    },
    release: (holder) => [...images.releaseLeases(holder), ...kernels.releaseLeases(holder)],
    holders: () => [...new Set([...images.leaseOwners(), ...kernels.leaseOwners()])],
  };
}
