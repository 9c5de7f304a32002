package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/compare"
	"github.com/tutti-project/tutti/internal/excerpt"
)

const (
	// diffFile marks the directory of a compile for a diff.
	diffFile = "diff"
	// keepDiffs is how many directories of compiles for a diff stay, in addition to those of other runs. A job for a
	// diff has at most five compiles on a node.
	keepDiffs = 10
	// ComparedFile is the file with the normalised catalog of a compile for a diff. The launcher writes the file at the
	// gate.
	ComparedFile = "catalog-diff.json"
	maxCompared  = 64 << 20 // bytes
)

// The function `compareJobs` returns the differences between this node's catalogs of two jobs (ADR 0038). Without jobs, the
// question is only whether this node can compare catalogs.
func compareJobs(a *Agent, jobs []tutti.JobID) (*tutti.CatalogDiff, error) {
	if len(jobs) != 2 {
		return nil, nil
	}
	var catalogs []compare.Catalog
	for _, job := range jobs {
		catalog, err := catalogOf(a, job)
		if err != nil {
			return nil, err
		}
		catalogs = append(catalogs, catalog)
	}
	out := compare.Catalogs(catalogs[0], catalogs[1])
	return &out, nil
}

// catalogOf returns the catalog of the last compile of a job.
func catalogOf(a *Agent, job tutti.JobID) (compare.Catalog, error) {
	dir, _, err := compileOf(a, job)
	if err != nil {
		return compare.Catalog{}, err
	}
	raw, err := excerpt.Read(filepath.Join(dir, ComparedFile), maxCompared)
	if errors.Is(err, fs.ErrNotExist) {
		return compare.Catalog{}, tutti.Errorf(tutti.CodeNotFound, "its last compile of job %s has left no catalog", job)
	}
	if err != nil {
		return compare.Catalog{}, tutti.Wrap("", err, "the catalog of job %s", job)
	}
	return compare.Read(raw)
}

// compileOf returns the directory and the order of the last compile of a job for a diff.
func compileOf(a *Agent, job tutti.JobID) (string, tutti.Order, error) {
	dirs, err := a.runDirs()
	if err != nil {
		return "", tutti.Order{}, err
	}
	for _, dir := range slices.Backward(dirs) {
		if spec, err := a.opts.Runner.Spec(dir); err == nil && spec.Order.Job == job && spec.Order.Diff {
			return dir, spec.Order, nil
		}
	}
	return "", tutti.Order{}, tutti.Errorf(tutti.CodeNotFound, "it has no compile of job %s any more", job)
}

// The function `checkJob` checks the code that a job has compiled here. Without a job, the question is only whether this
// node can check code. The code is on this node only with a signed permission to compile it, so its types may be loaded.
func checkJob(ctx context.Context, a *Agent, jobs []tutti.JobID) (*tutti.CodeChecked, error) {
	if len(jobs) != 1 {
		return nil, nil
	}
	dir, order, err := compileOf(a, jobs[0])
	if err != nil {
		return nil, err
	}
	found, err := a.opts.Local.Check(ctx, dir, a.code.tree(order.Code))
	if !a.code.intact(order.Code) { // also if an order for other code has removed the tree during the check
		return nil, tutti.Errorf(tutti.CodeNotFound, "it does not have the code of job %s any more", jobs[0])
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(x, y tutti.CodeProblem) int { return cmp.Compare(x.Level, y.Level) }) // "error" comes first
	out := tutti.CodeChecked{Problems: found[:min(len(found), tutti.MaxCodeProblems)]}
	out.Left = len(found) - len(out.Problems)
	return &out, nil
}
