package control

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// SourceOf says from which commit the code in a directory comes. The result is nil if no working copy of git has the
// directory's files, if git is not installed, or if git cannot read it: a push must not fail for that.
func SourceOf(ctx context.Context, dir string) *tutti.CodeSource {
	if _, err := run(ctx, dir, "ls-files", "--error-unmatch", "--", "."); err != nil {
		return nil
	}
	r := repository{dir: dir}
	id := r.has(ctx, "HEAD")
	status, err := run(ctx, dir, "status", "--porcelain", "--untracked-files=normal", "--ignored", "--", ".")
	if id == "" || err != nil {
		return nil
	}
	out := r.sourceOf(ctx, id)
	out.Ref, out.Dirty = r.head(ctx), len(status) > 0
	out = out.Clean()
	return &out
}

// The method `sourceOf` describes a commit for people.
func (r repository) sourceOf(ctx context.Context, id string) tutti.CodeSource {
	out := tutti.CodeSource{Commit: id, Repository: withoutPassword(r.url)}
	if r.url == "" {
		if remote, err := run(ctx, r.dir, "remote", "get-url", "origin"); err == nil {
			out.Repository = withoutPassword(strings.TrimSpace(string(remote)))
		}
	}
	if raw, err := run(ctx, r.dir, "log", "-1", "--no-show-signature", "--format=%an <%ae>%x00%cI%x00%s", id); err == nil {
		parts := strings.SplitN(strings.TrimSuffix(string(raw), "\n"), "\x00", 3)
		if len(parts) == 3 {
			out.Author, out.Subject = parts[0], parts[2]
			out.At, _ = time.Parse(time.RFC3339, parts[1])
		}
	}
	return out.Clean()
}

// The method `head` returns the branch that HEAD names, or an empty text.
func (r repository) head(ctx context.Context) string {
	if r.url == "" {
		out, err := run(ctx, r.dir, "symbolic-ref", "--short", "-q", "HEAD")
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	out, err := run(ctx, r.dir, "ls-remote", "--symref", "--", r.url, "HEAD")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(out), "ref: refs/heads/")
	name, _, _ := strings.Cut(rest, "\t")
	return name
}

// withoutPassword returns the address of a repository without user and password.
func withoutPassword(repository string) string {
	if u, err := url.Parse(repository); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	} else if err != nil { // git takes addresses that are no URL, for example with a % or # in the password
		if scheme, rest, is := strings.Cut(repository, "://"); is {
			return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
		}
	}
	return repository
}
