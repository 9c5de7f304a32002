// Command check runs the tests of this repository and shows how long each test took.
//
//	check                 what CI runs, in two lanes that use one core each
//	check -base REV       only the tests that the changes since that commit affect
//	check -only go,specs8 only these stages
//	check -deep PART      one part of the tests that check does not run; the result goes to docs/deep.md
//	check -deep list      the parts
//
// The command prints a line when a stage begins or ends. It also prints the output of
// each test that fails. The logs of all stages are in bin/check. The exit code is 1 if a
// test or a stage fails.
//
// Three tables define which tests run where: [stages] and [parts] (plan.go), and
// e2e/budget.tsv for the tests on lab hosts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	base := flag.String("base", "", "run only the tests that changes since this commit affect")
	only := flag.String("only", "", "run only these stages, a comma-separated list")
	deep := flag.String("deep", "", "a part of the deep tests; list shows all of them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *base, *only, *deep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// logDir contains the complete output of each stage.
const logDir = "bin/check"

func run(ctx context.Context, base, only, deep string) error {
	rows, err := readBudget(budgetFile)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return err
	}
	if deep != "" {
		return runDeep(ctx, rows, deep)
	}
	var change *change
	if base != "" {
		if change, err = changesSince(ctx, base); err != nil {
			return err
		}
	}
	chosen, err := choose(stages(rows, change), only)
	if err != nil {
		return err
	}
	r := newReport(os.Stdout, rows)
	r.runAll(ctx, chosen)
	return r.end()
}

// The function `choose` returns the named stages. A named stage does not wait for
// stages that are not named. If no stage is named, the function returns all stages.
func choose(all []stage, only string) ([]stage, error) {
	if only == "" {
		return all, nil
	}
	names := strings.Split(only, ",")
	var chosen []stage
	for _, s := range all {
		if slices.Contains(names, s.name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) != len(names) {
		return nil, fmt.Errorf("-only %s: the stages are %s", only, strings.Join(namesOf(all), ", "))
	}
	return chosen, nil
}

func namesOf(all []stage) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// runDeep runs the stages of a part one after another and writes its row.
func runDeep(ctx context.Context, rows budget, name string) error {
	all := parts(rows)
	i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
	if i < 0 {
		for _, p := range all {
			fmt.Printf("%-13s %s\n", p.name, p.what)
		}
		if name == "list" {
			return nil
		}
		return fmt.Errorf("there is no part %q: make deep PART=NAME with one of these", name)
	}
	commit, err := commitOf(ctx)
	if err != nil {
		return err
	}
	r := newReport(os.Stdout, rows)
	r.runAll(ctx, all[i].stages)
	err = r.end()
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err()) // an interrupted part gets no row
	}
	return errors.Join(err, writeDeep(deepFile, deepRow(all[i].name, commit, r)))
}
