#compdef fluxctl
autoload -Uz bashcompinit && bashcompinit
# bash completion for fluxctl
_fluxctl() {
  local cur="${COMP_WORDS[COMP_CWORD]}" path="" words="" flags="" names="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    case "$word" in
      -*) continue ;;
      vm|image|kernel|file|host) [ -z "$path" ] && { path="$word"; continue; } ;;
    esac
    if [ -z "$path" ]; then path="$word"; break; fi
    path="$path $word"; break
  done
  case "$path" in
    "") words="run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" flags="--server --token-file --output --quiet --help" ;;
    "vm") words="create list ls get show patch label start stop restart pause resume delete rm wait logs extend" ;;
    "image") words="import pull list ls get show delete rm" ;;
    "kernel") words="import pull list ls get show delete rm" ;;
    "file") words="ls list stat mkdir mv rename rm remove cat" ;;
    "host") words="report" ;;
    "run") flags="--name --interactive --tty --entrypoint --keep --vcpus --memory --disk --kernel --network --forward --allow-cidr --ttl --label --accel --backend --env --workdir --user --server --token-file --output --quiet --help" names=image ;;
    "exec") flags="--interactive --tty --detach --env --workdir --user --timeout --server --token-file --output --quiet --help" names=vm ;;
    "attach") flags="--interactive --server --token-file --output --quiet --help" names=vm ;;
    "execs") flags="--server --token-file --output --quiet --help" names=vm ;;
    "console"|"shell") flags="--user --server --token-file --output --quiet --help" names=vm ;;
    "cp") flags="--server --token-file --output --quiet --help" ;;
    "logs") flags="--follow --lines --server --token-file --output --quiet --help" names=vm ;;
    "vm create") flags="--image --vcpus --memory --disk --kernel --network --forward --allow-cidr --ttl --label --accel --backend --env --workdir --user --kernel-args --firmware --init --no-agent --no-workload --entrypoint --hostname --cloud-user --ssh-key --package --runcmd --write-file --user-data --spec --ready --server --token-file --output --quiet --help" ;;
    "vm list"|"vm ls") flags="--name --label --state --server --token-file --output --quiet --help" ;;
    "vm get"|"vm show") flags="--server --token-file --output --quiet --help" names=vm ;;
    "vm patch") flags="--name --label --unlabel --ttl --no-ttl --server --token-file --output --quiet --help" names=vm ;;
    "vm label") flags="--server --token-file --output --quiet --help" names=vm ;;
    "vm start") flags="--ready --server --token-file --output --quiet --help" names=vm ;;
    "vm stop") flags="--timeout --force --server --token-file --output --quiet --help" names=vm ;;
    "vm restart") flags="--timeout --force --ready --server --token-file --output --quiet --help" names=vm ;;
    "vm pause") flags="--server --token-file --output --quiet --help" names=vm ;;
    "vm resume") flags="--server --token-file --output --quiet --help" names=vm ;;
    "vm delete"|"vm rm") flags="--if-exists --server --token-file --output --quiet --help" names=vm ;;
    "vm wait") flags="--for --timeout --server --token-file --output --quiet --help" names=vm ;;
    "vm logs") flags="--follow --lines --server --token-file --output --quiet --help" names=vm ;;
    "vm extend") flags="--ttl --no-ttl --server --token-file --output --quiet --help" names=vm ;;
    "image import"|"image pull") flags="--name --sha256 --size --detach --server --token-file --output --quiet --help" ;;
    "image list"|"image ls") flags="--server --token-file --output --quiet --help" ;;
    "image get"|"image show") flags="--server --token-file --output --quiet --help" names=image ;;
    "image delete"|"image rm") flags="--server --token-file --output --quiet --help" names=image ;;
    "kernel import"|"kernel pull") flags="--modules --name --no-initrd --detach --server --token-file --output --quiet --help" ;;
    "kernel list"|"kernel ls") flags="--server --token-file --output --quiet --help" ;;
    "kernel get"|"kernel show") flags="--server --token-file --output --quiet --help" names=kernel ;;
    "kernel delete"|"kernel rm") flags="--server --token-file --output --quiet --help" names=kernel ;;
    "file ls"|"file list") flags="--server --token-file --output --quiet --help" ;;
    "file stat") flags="--server --token-file --output --quiet --help" ;;
    "file mkdir") flags="--parents --mode --server --token-file --output --quiet --help" ;;
    "file mv"|"file rename") flags="--server --token-file --output --quiet --help" ;;
    "file rm"|"file remove") flags="--recursive --server --token-file --output --quiet --help" ;;
    "file cat") flags="--server --token-file --output --quiet --help" ;;
    "host report") flags="--refresh --server --token-file --output --quiet --help" ;;
    "serve") flags="--server --token-file --output --quiet --help" ;;
    "doctor") flags="--server --token-file --output --quiet --help" ;;
    "version") flags="--server --token-file --output --quiet --help" ;;
  esac
  if [ -n "$names" ] && [ "${cur#-}" = "$cur" ]; then words="$(fluxctl "$names" list --output name --quiet 2>/dev/null)"; fi
  if [ "${cur#-}" != "$cur" ]; then words="$flags"; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _fluxctl fluxctl
