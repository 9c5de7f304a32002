package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-project/tutti"
)

// gitDeadline bounds each call of git. The first fetch of a large repository is the longest call.
const gitDeadline = 15 * time.Minute

// The type `repository` is a git repository: a bare clone in the cache, or a working copy of the operator.
type repository struct {
	cache Cache
	url   string // the remote; empty for a working copy
	dir   string
}

// clone returns the bare clone of a remote. It does not ask the remote.
func (c Cache) clone(ctx context.Context, url string) (repository, error) {
	r := repository{cache: c, url: url, dir: filepath.Join(c.Dir, "git", short(url)+".git")}
	if url == "" || strings.HasPrefix(url, "-") || strings.ContainsAny(url, "\x00\n") {
		return r, tutti.Errorf(tutti.CodeInvalid, "%q is not the address of a git repository", url)
	}
	if exists(r.dir) {
		return r, nil
	}
	unlock, err := c.lock("git-" + filepath.Base(r.dir))
	if err != nil {
		return r, err
	}
	defer unlock()
	if exists(r.dir) {
		return r, nil
	}
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o700); err != nil {
		return r, err
	}
	part, err := os.MkdirTemp(filepath.Dir(r.dir), ".new-*")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(part) }()
	if _, err := run(ctx, part, "init", "--quiet", "--bare", "."); err != nil {
		return r, err
	}
	return r, os.Rename(part, r.dir)
}

// The function `run` runs git in a directory and returns its output. Hooks, other protocols and questions are off.
func run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gitDeadline, tutti.Errorf(tutti.CodeDeadline, "git %s: no end within %s", args[0], gitDeadline))
	defer cancel()
	cmd := command(ctx, dir, nil, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	switch err := cmd.Run(); {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		text, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return nil, tutti.Errorf(tutti.CodeInvalid, "git %s: %s", args[0], tutti.Plain(cmp.Or(withUser.ReplaceAllString(text, "$1"), err.Error()), 300))
	}
}

// withUser matches the beginning of an address up to its user, which may be a token.
var withUser = regexp.MustCompile(`(https?://)[^/\s']*@`)

// ofOtherRepository has the variables with which a caller of tutti, for example a hook of git, may say which repository git
// means.
var ofOtherRepository = regexp.MustCompile(`^GIT_(?:DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|QUARANTINE_PATH|NAMESPACE|PREFIX|SHALLOW_FILE|GRAFT_FILE|IMPLICIT_WORK_TREE)=`)

// The function `command` returns a call of git. It ends with SIGTERM, so that git removes its locks.
func command(ctx context.Context, dir string, in io.Reader, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = dir, in, time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(slices.DeleteFunc(os.Environ(), ofOtherRepository.MatchString), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=https:ssh:git:file")
	if isClone.MatchString(filepath.Base(dir)) { // if the clone is damaged, git must not find a repository around the cache
		cmd.Env = append(cmd.Env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	}
	return cmd
}

// isClone matches the name of a clone in the cache.
var isClone = regexp.MustCompile(`^[0-9a-f]{24}\.git$`)

// The method `has` returns the commit that a name in the repository means, or an empty text.
func (r repository) has(ctx context.Context, name string) string {
	out, err := run(ctx, r.dir, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// The method `resolve` returns the commit of a reference, and the whole name of the branch or tag that it means. The name
// is empty if the reference is a commit or the remote's HEAD. The method asks the remote if the reference may have moved,
// and fetches if the commit is not in the clone.
func (r repository) resolve(ctx context.Context, ref string, kind refKind, otherwise string) (commit, name string, err error) {
	if r.url == "" {
		return r.own(ctx, ref)
	}
	switch {
	case kind == kindCommit || kind == kindAny && len(ref) == 40 && commitRE.MatchString(ref):
		if commit := r.has(ctx, ref); commit != "" {
			return commit, "", nil
		}
		commit, err = r.fetched(ctx, ref)
		return commit, "", err
	case kind == kindTag:
		commit, err = r.tag(ctx, ref)
		return commit, "refs/tags/" + ref, err
	}
	commit, name, err = r.ask(ctx, ref, kind)
	if err == nil && commit == "" && otherwise != "" {
		commit, name, err = r.ask(ctx, otherwise, kindBranch)
		ref = otherwise
	}
	switch {
	case err != nil:
		return "", "", err
	case commit == "" && kind == kindAny && commitRE.MatchString(ref):
		commit, err = r.fetched(ctx, ref)
		return commit, "", err
	case commit == "" && ref == "":
		return "", "", tutti.Errorf(tutti.CodeInvalid, "%s has no commit that is its HEAD: name a branch", withoutPassword(r.url))
	case commit == "":
		return "", "", tutti.Errorf(tutti.CodeInvalid, "%s has no %s %q", withoutPassword(r.url), kind, ref)
	case exists(r.cache.treeFile(commit)) || r.has(ctx, commit) != "":
		return commit, name, nil
	}
	commit, err = r.fetched(ctx, commit)
	return commit, name, err
}

// The method `tag` returns the commit of a tag. Once the commit is known, neither the remote nor git is asked again: a tag
// does not move.
func (r repository) tag(ctx context.Context, name string) (string, error) {
	file := filepath.Join(r.cache.Dir, "tags", short(r.url+"\x00"+name))
	if known, err := os.ReadFile(file); err == nil && commitRE.Match(known) && exists(r.cache.treeFile(string(known))) {
		return string(known), nil
	}
	commit := r.has(ctx, "refs/tags/"+name)
	if commit == "" {
		var err error
		if commit, err = r.fetched(ctx, "refs/tags/"+name); err != nil {
			return "", err
		}
	}
	return commit, r.cache.write(file, []byte(commit))
}

// The method `own` returns the commit and the whole name of a reference of a working copy. An empty reference means what is
// checked out. A branch that only origin has counts as a branch.
func (r repository) own(ctx context.Context, ref string) (commit, name string, err error) {
	names := []string{"HEAD"}
	if ref != "" && ref != "HEAD" {
		names = []string{"refs/heads/" + ref, "refs/tags/" + ref, "refs/remotes/origin/" + ref, ref}
	}
	for _, name := range names {
		commit := r.has(ctx, name)
		switch {
		case commit == "":
			continue
		case name == "refs/remotes/origin/"+ref:
			name = "refs/heads/" + ref
		case name == ref || name == "HEAD":
			name = ""
		}
		return commit, name, nil
	}
	return "", "", tutti.Errorf(tutti.CodeInvalid, "%s has no branch, tag or commit %q", r.dir, cmp.Or(ref, "HEAD"))
}

// The method `ask` asks the remote for the commit and the whole name of a branch or a tag. The commit is empty if the remote
// has none. An empty reference means the remote's HEAD, which has no name here.
func (r repository) ask(ctx context.Context, ref string, kind refKind) (commit, name string, err error) {
	names := []string{"refs/heads/" + ref, "refs/tags/" + ref + "^{}", "refs/tags/" + ref}
	switch {
	case ref == "":
		names = []string{"HEAD"}
	case kind == kindBranch:
		names = names[:1]
	}
	out, err := run(ctx, r.dir, append([]string{"ls-remote", "--", r.url}, names...)...)
	if err != nil {
		return "", "", tutti.Wrap("", err, "%s", withoutPassword(r.url))
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if commit, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			found[name] = commit
		}
	}
	for _, name := range names {
		if found[name] != "" {
			return found[name], strings.TrimSuffix(strings.TrimPrefix(name, "HEAD"), "^{}"), nil
		}
	}
	return "", "", nil
}

// The method `fetched` fetches all branches and tags, and returns the commit that a name means then.
func (r repository) fetched(ctx context.Context, name string) (string, error) {
	unlock, err := r.cache.lock("git-" + filepath.Base(r.dir))
	if err != nil {
		return "", err
	}
	defer unlock()
	if commit := r.has(ctx, name); commit != "" { // another process has fetched meanwhile
		return commit, nil
	}
	if _, err := run(ctx, r.dir, "fetch", "--quiet", "--force", "--prune", "--no-write-fetch-head", "--", r.url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"); err != nil {
		if said := err.Error(); strings.Contains(said, "File exists") || strings.Contains(said, "not a git repository") { // git was killed
			return "", tutti.Wrap("", err, "%s: the clone is damaged; remove it and deploy again: %s", withoutPassword(r.url), r.dir)
		}
		return "", tutti.Wrap("", err, "%s", withoutPassword(r.url))
	}
	if commit := r.has(ctx, name); commit != "" {
		return commit, nil
	}
	return "", tutti.Errorf(tutti.CodeInvalid, "%s has no branch, tag or commit %q", withoutPassword(r.url), name)
}

// The method `files` returns the files of a commit.
func (r repository) files(ctx context.Context, commit string) (files, error) {
	if of, known := r.cache.tree(commit); known {
		return of, nil
	}
	raw, err := run(ctx, r.dir, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	out := files{}
	paths := map[string][]string{} // by blob
	for line := range strings.SplitSeq(strings.TrimSuffix(string(raw), "\x00"), "\x00") {
		meta, name, ok := strings.Cut(line, "\t")
		parts := strings.Fields(meta)
		if !ok || len(parts) != 3 {
			continue
		}
		if parts[1] == "commit" {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s is a git submodule: name the module in the Puppetfile instead", name)
		}
		e := entry{Blob: parts[2]}
		e.Exec = parts[0] == "100755"
		if parts[0] == "120000" {
			e.Link = "?" // its content is read below
		}
		out[name] = e
		paths[e.Blob] = append(paths[e.Blob], name)
	}
	err = r.blobs(ctx, paths, func(names []string, content []byte) error {
		for _, name := range names {
			e := out[name]
			if e.Link != "" {
				e.CodeFile = tutti.CodeFile{Link: string(content)}
			} else {
				e.Digest, e.Size = tutti.DigestOf(content), int64(len(content))
			}
			out[name] = e
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, r.cache.keepTree(commit, out)
}

// maxFile is the largest file of code, in bytes.
const maxFile = 64 << 20

// The method `blobs` reads blobs, and passes each with its value to a function.
func (r repository) blobs(ctx context.Context, want map[string][]string, do func(names []string, content []byte) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, gitDeadline, tutti.Errorf(tutti.CodeDeadline, "git cat-file: no end within %s", gitDeadline))
	defer cancel()
	var ask strings.Builder
	for blob := range want {
		ask.WriteString(blob + "\n")
	}
	cmd := command(ctx, r.dir, strings.NewReader(ask.String()), "cat-file", "--batch")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = readBatch(pipe, want, do)
	if err != nil {
		cancel()
	}
	if ended := cmd.Wait(); err == nil {
		err = ended
	}
	return err
}

// readBatch reads the output of `git cat-file --batch`.
func readBatch(from io.Reader, want map[string][]string, do func([]string, []byte) error) error {
	in := bufio.NewReader(from)
	for range want {
		head, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		parts := strings.Fields(head)
		if len(parts) != 3 {
			return tutti.Errorf(tutti.CodeDamaged, "git cat-file: %s", strings.TrimSpace(head))
		}
		size, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil || size > maxFile {
			return tutti.Errorf(tutti.CodeInvalid, "%s: %s bytes, at most %d", want[parts[0]], parts[2], maxFile)
		}
		content := make([]byte, size+1) // with the line end after it
		if _, err := io.ReadFull(in, content); err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		if err := do(want[parts[0]], content[:size]); err != nil {
			return err
		}
	}
	return nil
}
