package operator

import (
	"bytes"
	"context"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// gitDeadline bounds each call of git that only reads a working copy.
const gitDeadline = 20 * time.Second

// SourceOf says from which commit the code in a directory comes. The result is nil if the directory is in no git working
// copy, if git is not installed, or if git cannot read it: a push must not fail for that.
func SourceOf(ctx context.Context, dir string) *tutti.CodeSource {
	ctx, cancel := context.WithTimeout(ctx, gitDeadline)
	defer cancel()
	if _, err := git(ctx, dir, "ls-files", "--error-unmatch", "--", "."); err != nil {
		return nil // the working copy around the directory does not have its files
	}
	head, err := git(ctx, dir, "log", "-1", "--no-show-signature", "--format=%H%x00%an <%ae>%x00%cI%x00%s")
	if err != nil {
		return nil
	}
	out := &tutti.CodeSource{}
	parts := strings.SplitN(head, "\x00", 4)
	if len(parts) != 4 {
		return nil
	}
	out.Commit, out.Author, out.Subject = parts[0], parts[1], parts[3]
	out.At, _ = time.Parse(time.RFC3339, parts[2])
	status, err := git(ctx, dir, "status", "--porcelain", "--untracked-files=normal", "--ignored", "--", ".")
	if err != nil {
		return nil
	}
	out.Dirty = status != ""
	out.Ref, _ = git(ctx, dir, "symbolic-ref", "--short", "-q", "HEAD")
	if remote, err := git(ctx, dir, "remote", "get-url", "origin"); err == nil {
		out.Repository = withoutPassword(remote)
	}
	return cleanSource(*out)
}

// The function `git` runs git in a directory and returns its output without the last line break.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "core.fsmonitor=false"}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0")
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", tutti.Errorf(tutti.CodeDeadline, "git %s: %s", args[0], context.Cause(ctx))
		}
		return "", tutti.Wrap(tutti.CodeInvalid, err, "git %s: %s", args[0], strings.TrimSpace(said.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// withoutPassword returns the address of a repository without user and password.
func withoutPassword(repository string) string {
	if u, err := url.Parse(repository); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return repository
}

// cleanSource makes the texts of a source fit for tutti.CodeSource.
func cleanSource(s tutti.CodeSource) *tutti.CodeSource {
	for _, text := range []*string{&s.Repository, &s.Ref, &s.Commit, &s.Author, &s.Subject} {
		*text = tutti.Plain(tutti.InLine(*text), tutti.MaxSourceText)
	}
	return &s
}
