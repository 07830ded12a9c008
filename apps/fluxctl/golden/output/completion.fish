# fish completion for fluxctl
complete -c fluxctl -f
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a vm -d 'Virtual machines'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a image -d 'Disk images VMs are made from'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a kernel -d 'Kernels guests boot with'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a file -d 'Files in a running VM'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a host -d 'The daemon\'s host'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a run -d 'Run a command in a VM of its own'
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l name
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l interactive
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l tty
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l entrypoint
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l keep
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l vcpus
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l memory
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l disk
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l kernel
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l network
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l forward
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l allow-cidr
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l ttl
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l label
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l accel
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l backend
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l env
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l workdir
complete -c fluxctl -n "__fish_seen_subcommand_from run" -l user
complete -c fluxctl -n "__fish_seen_subcommand_from run" -a "(fluxctl image list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a exec -d 'Run a command in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l interactive
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l tty
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l detach
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l env
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l workdir
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l user
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -l timeout
complete -c fluxctl -n "__fish_seen_subcommand_from exec" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a attach -d 'Attach to a command that runs in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from attach" -l interactive
complete -c fluxctl -n "__fish_seen_subcommand_from attach" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a execs -d 'List the commands of a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from execs" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a console -d 'Open a shell in a VM'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a shell -d 'Open a shell in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from console" -l user
complete -c fluxctl -n "__fish_seen_subcommand_from console" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a cp -d 'Copy files and directories into and out of a VM'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a logs -d 'Show what a VM printed on its console'
complete -c fluxctl -n "__fish_seen_subcommand_from logs" -l follow
complete -c fluxctl -n "__fish_seen_subcommand_from logs" -l lines
complete -c fluxctl -n "__fish_seen_subcommand_from logs" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a create -d 'Create a VM and start it'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l image
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l vcpus
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l memory
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l disk
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l kernel
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l network
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l forward
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l allow-cidr
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l ttl
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l label
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l accel
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l backend
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l env
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l workdir
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l user
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l kernel-args
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l firmware
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l init
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l no-agent
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l no-workload
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l entrypoint
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l hostname
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l cloud-user
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l ssh-key
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l package
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l runcmd
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l write-file
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l user-data
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l spec
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from create" -l ready
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a list -d 'List VMs'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a ls -d 'List VMs'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from list" -l name
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from list" -l label
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from list" -l state
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a get -d 'Show a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a show -d 'Show a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from get" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a patch -d 'Change a VM\'s name, labels or time to live'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from patch" -l name
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from patch" -l label
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from patch" -l unlabel
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from patch" -l ttl
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from patch" -l no-ttl
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from patch" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a label -d 'Set and remove labels'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from label" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a start -d 'Start a stopped VM'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from start" -l ready
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from start" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a stop -d 'Stop a VM: ask the guest first, then kill it'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from stop" -l timeout
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from stop" -l force
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from stop" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a restart -d 'Stop a VM and start it again'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from restart" -l timeout
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from restart" -l force
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from restart" -l ready
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from restart" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a pause -d 'Hold a running VM where it is'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from pause" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a resume -d 'Let a paused VM go on'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from resume" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a delete -d 'Delete VMs, running or not, with their disks'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a rm -d 'Delete VMs, running or not, with their disks'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from delete" -l if-exists
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from delete" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a wait -d 'Wait until a VM is in a state'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from wait" -l for
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from wait" -l timeout
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from wait" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a logs -d 'Show what a VM printed on its console'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from logs" -l follow
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from logs" -l lines
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from logs" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and not __fish_seen_subcommand_from create list ls get show patch label start stop restart pause resume delete rm wait logs extend" -a extend -d 'Set how long a VM still has to live'
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from extend" -l ttl
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from extend" -l no-ttl
complete -c fluxctl -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from extend" -a "(fluxctl vm list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a import -d 'Make an image of a source'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a pull -d 'Make an image of a source'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and __fish_seen_subcommand_from import" -l name
complete -c fluxctl -n "__fish_seen_subcommand_from image; and __fish_seen_subcommand_from import" -l sha256
complete -c fluxctl -n "__fish_seen_subcommand_from image; and __fish_seen_subcommand_from import" -l size
complete -c fluxctl -n "__fish_seen_subcommand_from image; and __fish_seen_subcommand_from import" -l detach
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a list -d 'List images'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a ls -d 'List images'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a get -d 'Show an image'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a show -d 'Show an image'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and __fish_seen_subcommand_from get" -a "(fluxctl image list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a delete -d 'Delete images that no VM uses, or cancel their import'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a rm -d 'Delete images that no VM uses, or cancel their import'
complete -c fluxctl -n "__fish_seen_subcommand_from image; and __fish_seen_subcommand_from delete" -a "(fluxctl image list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a import -d 'Make a guest kernel of a source'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a pull -d 'Make a guest kernel of a source'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and __fish_seen_subcommand_from import" -l modules
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and __fish_seen_subcommand_from import" -l name
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and __fish_seen_subcommand_from import" -l no-initrd
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and __fish_seen_subcommand_from import" -l detach
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a list -d 'List guest kernels'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a ls -d 'List guest kernels'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a get -d 'Show a guest kernel'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a show -d 'Show a guest kernel'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and __fish_seen_subcommand_from get" -a "(fluxctl kernel list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a delete -d 'Delete guest kernels that no VM uses, or cancel their import'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and not __fish_seen_subcommand_from import pull list ls get show delete rm" -a rm -d 'Delete guest kernels that no VM uses, or cancel their import'
complete -c fluxctl -n "__fish_seen_subcommand_from kernel; and __fish_seen_subcommand_from delete" -a "(fluxctl kernel list --output name --quiet 2>/dev/null)"
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a ls -d 'List a directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a list -d 'List a directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a stat -d 'Show what a path in a VM is'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a mkdir -d 'Make a directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and __fish_seen_subcommand_from mkdir" -l parents
complete -c fluxctl -n "__fish_seen_subcommand_from file; and __fish_seen_subcommand_from mkdir" -l mode
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a mv -d 'Rename a file or directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a rename -d 'Rename a file or directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a rm -d 'Remove a file or directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a remove -d 'Remove a file or directory in a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from file; and __fish_seen_subcommand_from rm" -l recursive
complete -c fluxctl -n "__fish_seen_subcommand_from file; and not __fish_seen_subcommand_from ls list stat mkdir mv rename rm remove cat" -a cat -d 'Print a file of a VM'
complete -c fluxctl -n "__fish_seen_subcommand_from host; and not __fish_seen_subcommand_from report" -a report -d 'Show what the daemon\'s host can do'
complete -c fluxctl -n "__fish_seen_subcommand_from host; and __fish_seen_subcommand_from report" -l refresh
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a serve -d 'Run the daemon'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a doctor -d 'Say what this host can do, and what to do about the rest'
complete -c fluxctl -n "not __fish_seen_subcommand_from run exec attach execs console shell cp logs serve doctor version vm image kernel file host help completion" -a version -d 'Show the daemon\'s version'
complete -c fluxctl -l server
complete -c fluxctl -l token-file
complete -c fluxctl -l output
complete -c fluxctl -l quiet
complete -c fluxctl -l help
