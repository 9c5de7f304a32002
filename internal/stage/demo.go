package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/uidoor"
)

const demoPlan = "deploy"

// The type `example` describes one example to the reader of a demonstration, and contains the
// function that uses the example.
type example struct {
	hosts string // the services on each host
	look  string // a command for looking at a node
	use   func(ctx context.Context, f *LabFleet, say func(string, ...any)) error
}

var examples = map[string]example{
	"compute": {
		hosts: "a controller and two compute nodes",
		look:  "compute-01 -- virsh list",
		use: func(ctx context.Context, f *LabFleet, say func(string, ...any)) error {
			if err := f.RunServers(ctx); err != nil {
				return err
			}
			say("On each compute node a server runs.")
			return nil
		},
	},
	"swift": {
		hosts: "Swift on four",
		look:  "proxy-01 -- swift-ring-builder /etc/swift/object.builder",
		use: func(ctx context.Context, f *LabFleet, say func(string, ...any)) error {
			if err := f.StoreAndFetch(ctx, []byte("Tutti: all together.\n"), say); err != nil {
				return err
			}
			say("The cluster works.")
			return nil
		},
	},
	"web": {
		hosts: "a load balancer and two web servers",
		look:  "lb-01 -- cat /etc/haproxy/haproxy.cfg",
		use: func(ctx context.Context, f *LabFleet, say func(string, ...any)) error {
			pages, err := f.AskSite(ctx)
			say("The load balancer answers %q", pages)
			return err
		},
	},
}

// Demo deploys an example on the hosts of a lab and uses the example. If standard output is for
// JSON, Demo writes its messages to standard error.
func Demo(ctx context.Context, operator Operator, o cli.Demo, show func(context.Context, cli.Server, tutti.JobID) error) error {
	say := teller(os.Stdout)
	if o.JSON {
		say = teller(os.Stderr)
	}
	shown, dir := examples[o.Name], filepath.Join(o.Dir, o.Name)
	spec, err := lab.ReadSpec(filepath.Join(dir, "lab.yaml"))
	if err != nil {
		return tutti.Wrap("", err, "the examples were not found; run this in the project's directory, or give --examples DIR")
	}
	if o.Release != "" {
		spec.Release = o.Release
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	machine := lab.Machine{Log: os.Stderr}
	say("Booting %d hosts: %s, the Tutti server on its own (the first time, building a base takes minutes)", len(spec.Hosts), shown.hosts)
	running, err := machine.Up(ctx, spec)
	if err != nil {
		return err
	}
	if !o.Keep {
		defer func() {
			say("Removing the lab (--keep would leave it)")
			// The lab must also be removed after an interrupt.
			if err := machine.Down(context.WithoutCancel(ctx), spec.Name); err != nil {
				say("%v", err)
			}
		}()
	}
	say("Starting the server on %s and joining the nodes, each with its own token", demoServer)
	f, err := StartLabFleet(ctx, operator, running, demoServer, binary, running.Dir)
	if err != nil {
		return err
	}
	deploy := demoDeploy
	if o.Converge {
		deploy = demoConverge
	}
	present := func() error {
		if err := deploy(ctx, f, dir, say, show); err != nil {
			return err
		}
		if err := shown.use(ctx, f, say); err != nil {
			return err
		}
		if o.Keep {
			say(lookAround, f.Conn.OperatorDir, spec.Name, shown.look, spec.Name)
		}
		return nil
	}
	if o.UI {
		return withPage(ctx, f, say, present)
	}
	return present()
}

// withPage shows the fleet in a browser while `present` runs, and afterwards until the page is closed.
func withPage(ctx context.Context, f *LabFleet, say func(string, ...any), present func() error) error {
	ctx, closePage := context.WithCancel(ctx)
	defer closePage()
	ended := make(chan error, 1)
	go func() {
		o := uidoor.Options{Server: f.Client, About: uidoor.About{Operator: demoOperator, Server: demoServer}}
		ended <- uidoor.Serve(ctx, o, "", func(at uidoor.Opened) {
			say("The page of this fleet: %s (works once, within a minute)", at.URL)
			if err := uidoor.Browse(ctx, at.File); err != nil {
				say("No browser was started (%v): open the address yourself", err)
			}
		})
	}()
	err := present()
	if err != nil {
		closePage()
	} else {
		say("The page stays until you press Ctrl-C, or until nobody has used it for an hour. Another address for it:\n"+
			"    bin/tutti --operator %s ui", f.Conn.OperatorDir)
	}
	return errors.Join(err, <-ended)
}

const (
	demoServer = "tutti"
	// demoOperator is the first operator of a server
	demoOperator = "admin"
	lookAround   = `The lab is kept. Look around:
    export TUTTI_OPERATOR=%s
    bin/tutti job show --reads
    bin/tutti node list
    bin/tutti data list
    bin/tutti lab exec --lab %s %s
    bin/tutti lab down %s`
)

// teller returns a function that prints each message with the time since the start.
func teller(w io.Writer) func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(w, "[%5.1fs] %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

func demoDeploy(ctx context.Context, f *LabFleet, dir string, say func(string, ...any), show func(context.Context, cli.Server, tutti.JobID) error) error {
	say("Signing the code and sending it with the fleet file")
	if err := f.Push(ctx, dir); err != nil {
		return err
	}
	say("Executing the plan %q in the order that the modules need; they are unmodified, as Debian ships them", demoPlan)
	job, err := f.Client.StartJob(ctx, api.StartJob{Plan: demoPlan, Mode: tutti.ModeApply})
	if err != nil {
		return err
	}
	return show(ctx, f.Client, job)
}

// demoConverge converges twice in place of executing the plan. The second time there is
// nothing to do.
func demoConverge(ctx context.Context, f *LabFleet, dir string, say func(string, ...any), show func(context.Context, cli.Server, tutti.JobID) error) error {
	say("Signing the code and sending it with the fleet file")
	if err := f.Push(ctx, dir); err != nil {
		return err
	}
	for _, why := range []string{
		"Converging without a plan: the order follows from what the nodes read and publish",
		"Converging again: nothing has changed, so nothing runs",
	} {
		say("%s", why)
		job, err := f.Client.StartJob(ctx, api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
		if err != nil {
			return err
		}
		if err := show(ctx, f.Client, job); err != nil {
			return err
		}
	}
	return nil
}

// Push signs and sends the example in dir, with its fleet file.
func (f *LabFleet) Push(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "tutti.yaml")
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	in := cli.PushCode{Dir: filepath.Join(dir, "code"), Environment: "production"}
	if _, err := f.operator.Push(ctx, f.Client, f.Conn, in); err != nil {
		return err
	}
	_, err = f.Client.SetFleet(ctx, api.FleetSource{File: file, Source: source})
	return err
}
