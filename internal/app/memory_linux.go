package app

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBack gives the machine back what only a start or a run has needed: garbage, and
// the pages of this program that it has touched. An idle agent touches few of them
// again, and these come from the page cache; without this they count as the agent's
// for as long as nobody else wants the memory.
func giveBack() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // it is no loss of anything else
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range unwritten(string(smaps), exe) {
		// An error leaves them where they are.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// unwritten returns the mappings of a file, by proc_pid_smaps(5), that are as the file
// is: they can neither be written, nor have they been, by a linker for example.
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
