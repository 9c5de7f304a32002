package app

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBack gives memory back to the machine that only a start or a run has needed: garbage, and
// touched pages of this program's file. An idle agent touches few of these pages
// again, and they then come from the page cache. Without giveBack they count as the agent's
// memory until another process needs it.
func giveBack() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // nothing else depends on it
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range unwritten(string(smaps), exe) {
		// On an error the pages stay.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// unwritten returns the mappings of a file that have the same content as the file, by proc_pid_smaps(5). They are not
// writable, and nothing, for example a linker, has written to them before.
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
