package agent

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-project/tutti/internal/excerpt"
)

// runDir is the directory of a run.
type runDir struct {
	path   string
	number uint64 // see wantedFile; 0 if the directory has no number
	at     time.Time
}

// runDirs returns the directories of all runs, the oldest first. The method sorts the directories
// by their numbers, because somebody may have changed the node's clock. The method sorts a
// directory without a number by its time.
func (a *Agent) runDirs() ([]string, error) {
	all, err := unsortedRunDirs(a.runsDir())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y runDir) int { return cmp.Or(cmp.Compare(x.number, y.number), x.at.Compare(y.at)) })
	n := slices.IndexFunc(all, func(d runDir) bool { return d.number > 0 })
	if n < 0 {
		n = len(all)
	}
	others := all[:n]
	var out []string
	for _, d := range all[n:] {
		for len(others) > 0 && others[0].at.Before(d.at) {
			out, others = append(out, others[0].path), others[1:]
		}
		out = append(out, d.path)
	}
	for _, d := range others {
		out = append(out, d.path)
	}
	return out, nil
}

// unsortedRunDirs returns the directories of all runs below a directory.
func unsortedRunDirs(runs string) ([]runDir, error) {
	entries, err := os.ReadDir(runs)
	if err != nil {
		return nil, err
	}
	var out []runDir
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		d := runDir{path: filepath.Join(runs, e.Name()), at: info.ModTime()}
		if text, err := excerpt.Read(filepath.Join(d.path, wantedFile), maxNumber); err == nil {
			d.number, _ = strconv.ParseUint(string(text), 10, 64)
		}
		out = append(out, d)
	}
	return out, nil
}

// nextNumber returns the number of the next run's directory, which is larger than all numbers of directories.
func nextNumber(runs string) string {
	all, _ := unsortedRunDirs(runs)
	last := uint64(0)
	for _, d := range all {
		last = max(last, d.number)
	}
	return strconv.FormatUint(last+1, 10)
}

// maxNumber bounds the length of the number in wantedFile, in bytes.
const maxNumber = 20
