package uidoor

import (
	"context"
	"os"
	"os/exec"
	"runtime"

	"github.com/tutti-project/tutti"
)

// Browse opens a file in the browser of the person who runs this program. Browse returns an error if this machine has no
// desktop. The program's arguments contain only the name of the file, because every user can read them.
func Browse(ctx context.Context, file string) error {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "":
		return tutti.Errorf(tutti.CodeUnavailable, "this machine has no desktop")
	}
	if _, err := exec.LookPath(program); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "a browser")
	}
	cmd := exec.CommandContext(ctx, program, file)
	if err := cmd.Start(); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "a browser")
	}
	go func() { _ = cmd.Wait() }() // the address is on the terminal, too
	return nil
}
