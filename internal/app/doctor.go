package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/serverdir"

	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/doctor"
	"github.com/tutti-project/tutti/internal/doctor/collect"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
)

const (
	day = 24 * time.Hour
)

// partOf describes a server or an agent. Its unit is in one of the directories into which Tutti or its package puts
// units.
func partOf(verb, dir, unit string, keeps uint64) collect.Part {
	return collect.Part{Verb: verb, Dir: dir, Unit: unit, UnitDirs: machine.UnitDirs(), Keeps: keeps}
}

// examine collects facts about this machine and lets package doctor check them. It changes nothing.
func examine(ctx context.Context, o cli.Examine) []doctor.Finding {
	f := doctor.Facts{Now: now(), Version: Version}
	if durable.Exists(filepath.Join(o.ServerDir, serverdir.ConfigFile)) {
		f.Server = serverFacts(ctx, o)
	}
	if durable.Exists(filepath.Join(machine.IdentityDir(o.AgentDir), "membership.json")) {
		f.Node = collect.Node(ctx, partOf("agent", o.AgentDir, machine.AgentUnit, agentReserve), o.Root)
	}
	f.Operator = operatorFacts(ctx, o.Connection)
	f.Now = now() // set the time again, because the requests to servers took time
	return doctor.Examine(f)
}

func serverFacts(ctx context.Context, o cli.Examine) *doctor.Server {
	dir := filepath.Join(o.ServerDir, "identity")
	s := &doctor.Server{Process: collect.Process(ctx, partOf("server", o.ServerDir, machine.ServerUnit, defaultReserve)), SyncAlways: true}
	s.Credentials = []doctor.Credential{
		collect.Certificate("the fleet's CA", filepath.Join(dir, "ca.crt"), 365*day, "the CA is never renewed automatically: run tutti rotate ca while the fleet runs"),
		collect.Certificate("the server's certificate", filepath.Join(dir, "server.crt"), 30*day, "systemctl restart tutti-server"),
	}
	s.Backup, s.Made = serverdir.LastBackup(o.ServerDir)
	scrub := serverdir.LastScrub(o.ServerDir)
	s.Scrubbed, s.Damaged = scrub.At, scrub.Damaged
	s.Reports, s.ReportsBad = doctorReports(o.ServerDir)
	if !s.Running {
		s.Log = lostLog(o.ServerDir)
		return s
	}
	var says runningFile
	if raw, err := os.ReadFile(filepath.Join(o.ServerDir, runningName)); err == nil && json.Unmarshal(raw, &says) == nil {
		s.SyncAlways = says.SyncAlways
	}
	ctx, cancel := context.WithTimeout(ctx, collect.Timeout)
	defer cancel()
	client, err := operator.ConnectLocal(operator.ConnectOptions{Socket: o.Connection.Socket, OperatorDir: o.Connection.OperatorDir})
	if err == nil {
		s.Nodes, err = client.ListNodes(ctx)
	}
	if err == nil {
		s.Rotation, _ = client.ShowCARotation(ctx) // a server of an earlier release does not know rotations
	}
	s.Asked = err
	return s
}

// lostLog returns the error about the log that the server would report at its next start.
func lostLog(dir string) error {
	if !durable.Exists(filepath.Join(dir, serverdir.HeadFile)) {
		return nil
	}
	h, err := serverdir.OpenHead(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil // the check of permissions reports this error
	}
	defer h.File.Close()
	files := filepath.Join(dir, "jetstream")
	if err := h.InFiles(files); err != nil {
		return err
	}
	return serverdir.OpenContent(dir).InFiles(files)
}

// operatorFacts returns nil if the directory has no operator's files.
func operatorFacts(ctx context.Context, c cli.Connection) *doctor.Operator {
	out := &doctor.Operator{Dir: c.OperatorDir}
	bundle, err := identity.LoadOperator(c.OperatorDir)
	if operator.NoOperator(err) {
		return nil
	}
	if err != nil {
		out.Asked = err
		return out
	}
	out.Name = bundle.Name
	out.Credentials = []doctor.Credential{{
		Name: "the certificate of operator " + bundle.Name, File: c.OperatorDir, Ends: bundle.Expires(), Notice: 30 * day,
		Mend: "any command renews it; if it has expired, run on the server, as root: tutti operator create " + bundle.Name,
	}}
	if c.Server == "" {
		raw, err := os.ReadFile(filepath.Join(c.OperatorDir, operator.OperatorServerFile))
		if err != nil {
			out.Asked = err
			return out
		}
		c.Server = strings.TrimSpace(string(raw))
	}
	address := strings.TrimPrefix(c.Server, "https://")
	out.Link = collect.Link(ctx, address, bundle.TLS())
	if out.Link.Err != nil {
		return out
	}
	out.Link.Time = collect.Clock(ctx, c.Server, bundle.TLS())
	client, err := operator.Connect(operator.ConnectOptions(c))
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, collect.Timeout)
		defer cancel()
		_, err = client.ListNodes(ctx)
	}
	out.Asked = err
	return out
}
