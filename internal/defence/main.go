// Command defence shows that the tests can fail. Each row of the files defences.yaml names a defence in a source
// file. For each row, the command makes a copy of the source file and removes the defence in the copy. The compiler
// reads the copy with -overlay. Command defence runs the test, which must fail without the defence. Command defence
// then runs the test again with the defence, and the test must pass. No file of the tree changes. Command defence
// prints a table with one line for each row, and a last line with the counts. Command defence fails if a test passes
// without its defence.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	var c choice
	flag.StringVar(&c.run, "run", "", "only the rows whose promise, file or test fits this regular expression")
	flag.StringVar(&c.changed, "changed", "", "only rows that are new, or whose file or test changed, since HEAD left this revision")
	flag.StringVar(&c.part, "part", "1/1", "only this part of the rows, like 2/3")
	flag.IntVar(&c.most, "most", 0, "the largest number of rows, evenly spread over the remaining rows; 0 means all")
	list := flag.Bool("list", false, "print the rows and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, c, *list)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "defence:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c choice, list bool) error {
	all, err := read(os.DirFS("."))
	if err != nil {
		return err
	}
	rows, err := c.of(ctx, all)
	if err != nil {
		return err
	}
	if list {
		for _, d := range rows {
			fmt.Printf("%s: %s: %s %s\n", d.from, d.Promise, d.Package, d.Test)
		}
		fmt.Printf("%d of %d rows\n", len(rows), len(all))
		return nil
	}
	return tryAll(ctx, os.Stdout, rows)
}

// tryAll tries the rows one after the other. The last line of the output has the numbers of passed
// and failed rows.
func tryAll(ctx context.Context, out io.Writer, rows []defence) error {
	fmt.Fprintln(out, "| invariant or attack | taken out | test | printed without it | prints with it |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	passed, failed := 0, 0
	for _, d := range rows {
		without, with, err := d.try(ctx)
		if ctx.Err() != nil {
			fmt.Fprintf(out, "%d passed, %d failed, %d not run\n", passed, failed, len(rows)-passed-failed)
			return errors.New("interrupted")
		}
		if err != nil {
			failed++
			fmt.Fprintf(out, "FAILED %s (%s of %s): %v\n", d.Promise, d.Test, d.from, err)
			continue
		}
		passed++
		fmt.Fprintf(out, "| %s | %s | `%s` %s | %s | %s |\n", d.Promise, d.Out, d.Test, d.Package, without, with)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return fmt.Errorf("%d rows failed", failed)
	}
	return nil
}
