import { defineCommand } from "../../command.ts";
import { followImport } from "../../imports/import-object.ts";
import { parseGib } from "../../option-values.ts";
import { IMAGE_PRESENTATION } from "./image-presentation.ts";

export const imageImport = defineCommand({
  path: ["image", "import"],
  aliases: ["pull"],
  summary: "Make an image of a source",
  description:
    "Make an image of a source: docker://REF, oci:DIR[:TAG], oci-archive:FILE[:TAG], debian:SUITE[+package,...], or the path or http(s) URL of a raw or qcow2 disk.",
  arguments: [{ name: "<source>", description: "where the image comes from" }],
  options: [
    { flags: "--name <name>", description: "name to refer to it by (default: the source)" },
    { flags: "--sha256 <hex>", description: "digest a disk from http(s) must have" },
    { flags: "--size <size>", description: "least size of the file system made, for example 4G" },
    { flags: "-d, --detach", description: "do not wait for the import's end" },
  ],
  examples: ["fluxctl image import debian:bookworm+curl,git --name dev", "fluxctl image pull docker://alpine:3.20"],
  async run(context, input) {
    const size = input.text("size");
    const client = await context.client();
    const request = {
      source: input.argument(0),
      ...(input.text("name") === undefined ? {} : { name: input.text("name") }),
      ...(input.text("sha256") === undefined ? {} : { sha256: input.text("sha256") }),
      ...(size === undefined ? {} : { size_gib: parseGib("--size", size) }),
    };
    const started = await client.images.create(request, { signal: context.signal });
    const image = input.isOn("detach") ? started : await followImport(context, client.images, started);
    context.printer.result(image, IMAGE_PRESENTATION, `${image.name} is ${image.state} (${image.id})`);
    return 0;
  },
});
