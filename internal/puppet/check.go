package puppet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

// checkDeadline bounds a check of code.
const checkDeadline = 10 * time.Minute

// Check checks the code of an environment in a directory with this Puppet: the syntax of its files, missing modules, and
// names of classes and resource types that nothing defines. It compiles nothing. The argument `more` lists directories of
// modules that the nodes have besides the code. The result is sorted by file and line. Temporary files are in the
// directory `temporary`, or in the usual directory if that text is empty.
func (i Installation) Check(ctx context.Context, temporary, dir string, more ...string) ([]tutti.CodeProblem, error) {
	scratch, err := os.MkdirTemp(temporary, "tutti-check-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	launcher, err := launcherIn(scratch)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkDeadline, tutti.Errorf(tutti.CodeDeadline, "the check of %s has no end within %s", dir, checkDeadline))
	defer cancel()
	cmd := exec.CommandContext(ctx, i.Ruby, launcher, "--check", dir)
	for _, m := range more {
		if m, err = filepath.Abs(m); err != nil {
			return nil, err
		}
		cmd.Args = append(cmd.Args, m)
	}
	cmd.Dir, cmd.WaitDelay, cmd.Env = scratch, time.Second, append(cleanEnv(), "HOME="+scratch, "TMPDIR="+scratch)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, tutti.Errorf(tutti.CodeInvalid, "the check of %s failed: %s", dir, firstLine(said.String(), err))
	}
	return problems(out.Bytes())
}

// firstLine returns the first line that a process has written, or the error with which the process ended.
func firstLine(said string, err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return tutti.Plain(cmp.Or(line, err.Error()), 1000)
}

// launcherIn copies the module into a directory, and returns the path of its launcher.
func launcherIn(dir string) (string, error) {
	module := filepath.Join(dir, "modules", "tutti")
	if err := os.MkdirAll(filepath.Dir(module), 0o700); err != nil {
		return "", err
	}
	return filepath.Join(module, "bin", "puppet-tutti"), os.CopyFS(module, puppetmodule.FS())
}

// The function `problems` reads the lines of puppet-tutti --check.
func problems(raw []byte) ([]tutti.CodeProblem, error) {
	out := []tutti.CodeProblem{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p tutti.CodeProblem
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil || p.Level != tutti.ProblemError && p.Level != tutti.ProblemWarning {
			return nil, tutti.Errorf(tutti.CodeInvalid, "the check of code says %.200q, which is not a problem", lines.Text())
		}
		out = append(out, p)
	}
	return out, lines.Err()
}
