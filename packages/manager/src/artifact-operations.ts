/** Images and kernels: handed on to their services. */
import type { CreateImageRequest, CreateKernelRequest, ImageView, KernelView } from "@fluxvm/contracts";
import type { CallOptions } from "@fluxvm/core";
import type { ImageService, KernelService } from "./ports.ts";

type Waiting = CallOptions & { readonly timeoutMs: number };

export interface ArtifactOperations<Request, View> {
  create(request: Request, options: CallOptions): Promise<View>;
  list(): Promise<readonly View[]>;
  get(reference: string): Promise<View>;
  wait(reference: string, options: Waiting): Promise<View>;
  delete(reference: string, options: CallOptions): Promise<void>;
}

export function forwardImages(images: ImageService): ArtifactOperations<CreateImageRequest, ImageView> {
  return forward<CreateImageRequest, ImageView>(images);
}

export function forwardKernels(kernels: KernelService): ArtifactOperations<CreateKernelRequest, KernelView> {
  return forward<CreateKernelRequest, KernelView>(kernels);
}

interface Service<Request, View> {
  create(request: Request, options: CallOptions): Promise<View>;
  list(): readonly View[] | Promise<readonly View[]>;
  get(reference: string): View | Promise<View>;
  wait(reference: string, options: Waiting): Promise<View>;
  delete(reference: string, options: CallOptions): Promise<void>;
}

function forward<Request, View>(service: Service<Request, View>): ArtifactOperations<Request, View> {
  return {
    create: async (request, options) => await service.create(request, options),
    list: async () => await service.list(),
    get: async (reference) => await service.get(reference),
    wait: async (reference, options) => await service.wait(reference, options),
    delete: async (reference, options) => await service.delete(reference, options),
  };
}
