package app

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBack returns memory to the operating system: garbage, and pages that were read from the program's file. Most of
// this memory was needed only for the start or for a run. An idle agent needs few of these pages again, and gets
// these few from the page cache. Without giveBack, these pages stay in the agent's memory until another process needs
// memory.
func giveBack() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // after an error, the pages stay in memory for now
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range unwritten(string(smaps), exe) {
		// On an error, the pages stay in memory.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// The function `unwritten` returns the mappings of a file that still have the file's content. A mapping is returned
// if it is not writable and has no page that somebody, for example a linker, has written (proc_pid_smaps(5)).
func unwritten(smaps, file string) []mapping {
	var out []mapping
	var at mapping
	ours := false
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "Anonymous:" {
			if ours && fields[1] == "0" {
				out = append(out, at)
			}
			ours = false
			continue
		}
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s ", &at.begin, &at.end, &rights); n == 3 {
			ours = strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+file) && !strings.Contains(rights, "w")
		}
	}
	return out
}
