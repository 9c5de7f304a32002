//go:build e2e

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti/internal/lab"
)

// The function `traces` lists everything on this machine that belongs to the lab with this name.
// Each line contains the lab's directory, or the id that is part of all names of the lab.
func traces(name string) []string {
	dir := filepath.Join(lab.DefaultState, name)
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:4])
	var found []string
	keep := func(kind, text string) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, dir+"/") || strings.Contains(line, id) {
				found = append(found, kind+" "+strings.TrimSpace(line))
			}
		}
	}
	for _, args := range [][]string{
		{"ip", "-o", "link"}, {"ip", "-o", "addr"}, {"ip", "route", "show", "table", "all"}, {"nft", "list", "ruleset"},
		{"find", "/sys/fs/cgroup", "-type", "d", "-name", "tutti-lab.*"},
	} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			keep(args[0], id+": "+err.Error()) // if something cannot be checked, it counts as a trace
		}
		keep(args[0], string(out))
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		keep("mount", id+": "+err.Error())
	}
	keep("mount", string(mounts))
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range processes {
		text, err := os.ReadFile(path)
		if err == nil { // on an error the process has ended
			keep("process "+filepath.Dir(path), strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	if _, err := os.Stat(dir); err == nil {
		found = append(found, "directory "+dir)
	}
	return found
}

// noTraces waits until no trace of a lab is left. The kernel removes namespaces some time after
// their last process.
func noTraces(name string) error {
	var left []string
	for range 50 {
		if left = traces(name); len(left) == 0 {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return fmt.Errorf("lab %s is down and left:\n%s", name, strings.Join(left, "\n"))
}
