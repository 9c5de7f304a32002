package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/lab"
)

const demoPlan = "deploy"

// demo deploys OpenStack Swift on the hosts of a lab, stores an object and
// fetches it. What it tells goes to standard error when standard output is for
// JSON.
func demo(ctx context.Context, o cli.Demo, show func(context.Context, cli.Server, tutti.JobID) error) error {
	say := teller(os.Stdout)
	if o.JSON {
		say = teller(os.Stderr)
	}
	dir := filepath.Join(o.Dir, o.Name)
	spec, err := lab.ReadSpec(filepath.Join(dir, "lab.yaml"))
	if err != nil {
		return tutti.Wrap("", err, "the examples are not here; run this where the project lies, or give --examples DIR")
	}
	if o.Release != "" {
		spec.Release = o.Release
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	machine := lab.Machine{Log: os.Stderr}
	say("Booting %d hosts: Swift on four, the Tutti server on its own (the first time a base is built: minutes)", len(spec.Hosts))
	running, err := machine.Up(ctx, spec)
	if err != nil {
		return err
	}
	if !o.Keep {
		defer func() {
			say("Removing the lab (--keep would leave it)")
			// Also when the person interrupted us.
			if err := machine.Down(context.WithoutCancel(ctx), spec.Name); err != nil {
				say("%v", err)
			}
		}()
	}
	say("Starting the server on %s and joining the nodes, each with its own token", demoServer)
	f, err := StartLabFleet(ctx, running, demoServer, binary, running.Dir)
	if err != nil {
		return err
	}
	deploy := demoDeploy
	if o.Converge {
		deploy = demoConverge
	}
	if err := deploy(ctx, f, dir, say, show); err != nil {
		return err
	}
	if o.Keep {
		say(lookAround, f.Conn.OperatorDir, spec.Name, spec.Name)
	}
	return nil
}

const (
	demoServer = "tutti"
	lookAround = `The lab is kept. Look around:
    export TUTTI_OPERATOR=%s
    bin/tutti job show --reads
    bin/tutti node list
    bin/tutti data list
    bin/tutti lab exec --lab %s proxy-01 -- swift-ring-builder /etc/swift/object.builder
    bin/tutti lab down %s`
)

// teller numbers what it tells by the time since the beginning.
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
	say("Executing the plan %q: the order that the Swift modules need, unmodified as Debian ships them", demoPlan)
	job, err := f.Client.StartJob(ctx, tutti.StartJob{Plan: demoPlan, Mode: tutti.ModeApply})
	if err != nil {
		return err
	}
	if err := show(ctx, f.Client, job); err != nil {
		return err
	}
	return f.demoUse(ctx, say)
}

// demoUse shows that the cluster works.
func (f *LabFleet) demoUse(ctx context.Context, say func(string, ...any)) error {
	if err := f.StoreAndFetch(ctx, []byte("Tutti: all together.\n"), say); err != nil {
		return err
	}
	say("The cluster works.")
	return nil
}

// demoConverge deploys without the plan, twice: the second time there is nothing
// to do.
func demoConverge(ctx context.Context, f *LabFleet, dir string, say func(string, ...any), show func(context.Context, cli.Server, tutti.JobID) error) error {
	say("Signing the code and sending it with the fleet file")
	if err := f.Push(ctx, dir); err != nil {
		return err
	}
	for _, why := range []string{
		"Converging: no plan; what the nodes read and publish says who runs after whom",
		"Converging again: nothing has changed, so nothing runs",
	} {
		say("%s", why)
		job, err := f.Client.StartJob(ctx, tutti.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
		if err != nil {
			return err
		}
		if err := show(ctx, f.Client, job); err != nil {
			return err
		}
	}
	return f.demoUse(ctx, say)
}

// Push signs and sends the example in dir, with its fleet file.
func (f *LabFleet) Push(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "tutti.yaml")
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := push(ctx, f.Client, f.Conn, filepath.Join(dir, "code"), "production"); err != nil {
		return err
	}
	_, err = f.Client.SetFleet(ctx, tutti.FleetSource{File: file, Source: source})
	return err
}

// StoreAndFetch stores an object in the Swift that was deployed, through its
// API, and fetches it again. Its proxy is the node whose name says so.
func (f *LabFleet) StoreAndFetch(ctx context.Context, content []byte, say func(string, ...any)) error {
	i := slices.IndexFunc(f.Nodes, func(h *lab.Host) bool { return strings.HasPrefix(h.Name, "proxy-") })
	if i < 0 {
		return tutti.Errorf(tutti.CodeNotFound, "no node of lab %q is called proxy-…", f.Lab.Name)
	}
	proxy := "http://" + f.Nodes[i].Address.String() + ":8080"
	ctx, cancel := context.WithTimeoutCause(ctx, swiftDeadline, fmt.Errorf("no answer of Swift within %s", swiftDeadline))
	defer cancel()
	auth, err := swift(ctx, http.MethodGet, proxy+"/auth/v1.0", http.Header{"X-Auth-User": {"test:tester"}, "X-Auth-Key": {"testing"}}, nil)
	if err != nil {
		return err
	}
	token := http.Header{"X-Auth-Token": {auth.header.Get("X-Auth-Token")}}
	const container, object = "/v1/AUTH_test/demo", "/v1/AUTH_test/demo/hello"
	if _, err := swift(ctx, http.MethodPut, proxy+container, token, nil); err != nil {
		return err
	}
	put, err := swift(ctx, http.MethodPut, proxy+object, token, content)
	if err != nil {
		return err
	}
	say("PUT %s%s: %s", proxy, object, put.status)
	get, err := swift(ctx, http.MethodGet, proxy+object, token, nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(get.content, content) {
		return fmt.Errorf("GET %s returned %q, stored was %q", object, get.content, content)
	}
	say("GET %s%s: %s: %q", proxy, object, get.status, get.content)
	return nil
}

// swiftAnswer is an answer of Swift that was not an error.
type swiftAnswer struct {
	status  string
	header  http.Header
	content []byte
}

// Units of Swift are started before their servers listen, and the proxy leaves out
// those that did not answer for a minute.
const (
	swiftDeadline   = 2 * time.Minute
	swiftAgainEvery = 3 * time.Second
)

// swift asks Swift, and again while it says that its servers are not there.
func swift(ctx context.Context, method, url string, header http.Header, body []byte) (swiftAnswer, error) {
	for {
		answer, code, err := askSwift(ctx, method, url, header, body)
		if code != http.StatusServiceUnavailable {
			return answer, err
		}
		if !sleep(ctx, swiftAgainEvery) {
			return answer, errors.Join(err, context.Cause(ctx))
		}
	}
}

func askSwift(ctx context.Context, method, url string, header http.Header, body []byte) (swiftAnswer, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return swiftAnswer{}, 0, err
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return swiftAnswer{}, 0, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, content)
	}
	return swiftAnswer{resp.Status, resp.Header, content}, resp.StatusCode, err
}

func untar(ctx context.Context, packed []byte, dir string) error {
	cmd := exec.CommandContext(ctx, "tar", "-C", dir, "--no-same-owner", "-x")
	cmd.Stdin = bytes.NewReader(packed)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpack the operator's credentials: %w: %s", err, out)
	}
	return nil
}
