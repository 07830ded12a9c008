/** Every command there is, in the order help lists them. */
import type { CommandDefinition } from "../command.ts";
import { cp } from "./file/cp.ts";
import { attach } from "./exec/attach.ts";
import { console } from "./exec/console.ts";
import { exec } from "./exec/exec.ts";
import { execs } from "./exec/execs.ts";
import { run } from "./exec/run.ts";
import { fileCat } from "./file/cat.ts";
import { fileLs } from "./file/ls.ts";
import { fileMkdir } from "./file/mkdir.ts";
import { fileMv } from "./file/mv.ts";
import { fileRm } from "./file/rm.ts";
import { fileStat } from "./file/stat.ts";
import { hostReport } from "./host/report.ts";
import { imageDelete } from "./image/delete.ts";
import { imageGet } from "./image/get.ts";
import { imageImport } from "./image/import.ts";
import { imageList } from "./image/list.ts";
import { kernelDelete } from "./kernel/delete.ts";
import { kernelGet } from "./kernel/get.ts";
import { kernelImport } from "./kernel/import.ts";
import { kernelList } from "./kernel/list.ts";
import { defineCompletion } from "./top/completion.ts";
import { doctor, serve } from "./top/daemon.ts";
import { version } from "./top/version.ts";
import { vmCreate } from "./vm/create.ts";
import { vmDelete } from "./vm/delete.ts";
import { vmExtend } from "./vm/extend.ts";
import { vmGet } from "./vm/get.ts";
import { vmLabel } from "./vm/label.ts";
import { vmList } from "./vm/list.ts";
import { logs, vmLogs } from "./vm/logs.ts";
import { vmPatch } from "./vm/patch.ts";
import { vmPause, vmRestart, vmResume, vmStart, vmStop } from "./vm/power.ts";
import { vmWait } from "./vm/wait.ts";

export const NOUNS: Readonly<Record<string, string>> = {
  vm: "Virtual machines",
  image: "Disk images VMs are made from",
  kernel: "Kernels guests boot with",
  file: "Files in a running VM",
  host: "The daemon's host",
};

const LISTED: readonly CommandDefinition[] = [
  run,
  exec,
  attach,
  execs,
  console,
  cp,
  logs,
  ...[vmCreate, vmList, vmGet, vmPatch, vmLabel, vmStart, vmStop, vmRestart, vmPause, vmResume, vmDelete, vmWait, vmLogs, vmExtend],
  ...[imageImport, imageList, imageGet, imageDelete],
  ...[kernelImport, kernelList, kernelGet, kernelDelete],
  ...[fileLs, fileStat, fileMkdir, fileMv, fileRm, fileCat],
  hostReport,
  serve,
  doctor,
  version,
];

export const COMMANDS: readonly CommandDefinition[] = [...LISTED, defineCompletion({ commands: LISTED, nouns: NOUNS })];
