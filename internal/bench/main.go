// Command bench measures the numbers in docs/benchmarks.md. Command bench prints one line for each
// number: name, value, unit, goal, and whether the goal was met. Numbers that compare two things
// are ratios of times from the same run. Command bench needs root for the lab.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// figure is one measured number. The goal of a figure is the largest allowed value. If the goal is
// 0, the figure has no goal and only explains other figures.
type figure struct {
	name  string
	value float64
	unit  string
	goal  float64
}

func (f figure) String() string {
	if f.goal == 0 {
		return fmt.Sprintf("%-44s %10.3f %-6s", f.name, f.value, f.unit)
	}
	verdict := "met"
	if f.value > f.goal {
		verdict = "missed"
	}
	return fmt.Sprintf("%-44s %10.3f %-6s <=%-8g %s", f.name, f.value, f.unit, f.goal, verdict)
}

// options are the options of the command line.
type options struct {
	binary  string // the tutti to measure
	nodes   int    // number of simulated nodes in the fleet
	behind  bool   // all simulated nodes connect from one address
	profile string // directory for profiles of the fleet's server and agents
}

func main() {
	var o options
	noLab := flag.Bool("no-lab", false, "measure only what needs no lab hosts")
	only := flag.String("only", "", "one of gap, start, past, converge, read, hostile, scale, return, status, swift, agent, warm")
	serve := flag.String("serve", "", "run as the server of this data directory, with profiles on "+profileAddress)
	attack := flag.String("attack", "", "run as the hostile peers of this directory")
	flood := flag.String("flood", "", "with -attack: what the hostile peers do")
	flag.StringVar(&o.binary, "binary", "bin/tutti", "the tutti to measure")
	flag.IntVar(&o.nodes, "nodes", 1000, "number of simulated nodes in the large fleet; with 0 there is no such fleet")
	flag.BoolVar(&o.behind, "one-address", false, "simulated nodes come from one address, as behind NAT, and not each from its own address")
	flag.StringVar(&o.profile, "profile", "", "write profiles of the large fleet's processes into this directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := error(nil)
	switch {
	case *serve != "":
		err = serveProfiled(ctx, *serve)
	case *attack != "":
		err = attackFrom(ctx, *attack, *flood)
	default:
		err = run(ctx, o, *only, *noLab)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, only string, noLab bool) error {
	measures := []struct {
		name    string
		measure func(context.Context, options) ([]figure, error)
		skip    bool
	}{
		{"gap", measureGap, false},
		{"start", measureStart, false},
		{"past", measurePast, false},
		{"converge", measureConverge, false},
		{"read", measureRead, o.nodes == 0},
		{"hostile", measureHostile, false},
		{"scale", measureScale, o.nodes == 0},
		{"return", measureReturn, only != "return"}, // skipped if it is not named, because `scale` also measures a return
		{"status", measureStatus, o.nodes == 0},
		{"swift", measureSwift, noLab},
		{"agent", measureAgent, noLab},
		{"warm", measureWarm, noLab},
	}
	for _, m := range measures {
		if m.skip || only != "" && only != m.name {
			continue
		}
		figures, err := m.measure(ctx, o)
		if err != nil {
			return err
		}
		for _, f := range figures {
			fmt.Println(f)
		}
	}
	return nil
}

// quantile returns a quantile of durations in milliseconds; q is from 0 to 1.
func quantile(all []time.Duration, q float64) float64 {
	slices.SortFunc(all, cmp.Compare[time.Duration])
	return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000
}
