/** All rules over one tree. */
import { checkBackendNames, checkIntervals, checkProcess, checkPurity } from "./rules/ambient.ts";
import { checkCrateMap, checkDeclaredWords, checkDocuments } from "./rules/documents.ts";
import { checkCycles, checkDeclaredImports, checkDeepImports, checkLayers, checkNodeModules, checkSideEffects } from "./rules/imports.ts";
import { checkAcronyms, checkUnits } from "./rules/names.ts";
import { checkManifests, checkPlaces, checkReadmes, checkSizes, checkTestsRun, checkWords } from "./rules/repository.ts";
import {
  checkFileLength,
  checkFunctions,
  checkHeaders,
  checkIndexFiles,
  checkNames,
  checkReasons,
  checkSyntax,
  checkTypeNames,
} from "./rules/shape.ts";
import { Tree, type Problem, type Rule } from "./tree.ts";

export const RULES: readonly Rule[] = [
  checkSyntax,
  checkLayers,
  checkDeepImports,
  checkDeclaredImports,
  checkCycles,
  checkNodeModules,
  checkSideEffects,
  checkProcess,
  checkPurity,
  checkIntervals,
  checkBackendNames,
  checkNames,
  checkTypeNames,
  checkUnits,
  checkAcronyms,
  checkFileLength,
  checkFunctions,
  checkReasons,
  checkIndexFiles,
  checkHeaders,
  checkManifests,
  checkReadmes,
  checkTestsRun,
  checkWords,
  checkSizes,
  checkPlaces,
  checkDocuments,
  checkCrateMap,
  checkDeclaredWords,
];

/** What is wrong under `root`, by path and line. */
export function runTidy(root: string): Problem[] {
  const tree = new Tree(root);
  const problems = RULES.flatMap((rule) => [...rule(tree)]);
  return problems.sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1));
}

export function formatProblem(problem: Problem): string {
  return `${problem.path}${problem.line > 0 ? `:${problem.line}` : ""}: ${problem.rule}: ${problem.message}`;
}
