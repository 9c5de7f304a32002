// Command bench measures the figures of docs/benchmarks.md and prints one line
// for each: name, value, unit, goal, and whether it was met. Figures that
// compare are ratios of times measured in one run. It needs root for the lab.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

// figure is one measured number and its goal: at most.
type figure struct {
	name  string
	value float64
	unit  string
	goal  float64
}

func (f figure) String() string {
	verdict := "met"
	if f.value > f.goal {
		verdict = "missed"
	}
	return fmt.Sprintf("%-34s %10.3f %-6s <=%-8g %s", f.name, f.value, f.unit, f.goal, verdict)
}

func main() {
	noLab := flag.Bool("no-lab", false, "only what needs no lab hosts")
	binary := flag.String("binary", "bin/tutti", "the tutti to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *binary, !*noLab)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string, withLab bool) error {
	measures := []func(context.Context, string) ([]figure, error){measureGap, measureStart}
	if withLab {
		measures = append(measures, measureSwift)
	}
	for _, measure := range measures {
		figures, err := measure(ctx, binary)
		if err != nil {
			return err
		}
		for _, f := range figures {
			fmt.Println(f)
		}
	}
	return nil
}

// quantile of durations in milliseconds; q from 0 to 1.
func quantile(all []time.Duration, q float64) float64 {
	slices.SortFunc(all, cmp.Compare[time.Duration])
	return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000
}
