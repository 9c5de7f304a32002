package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/control"
	"github.com/tutti-project/tutti/internal/doctor"
	"github.com/tutti-project/tutti/internal/doctor/collect"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/serverdir"
	"github.com/tutti-project/tutti/internal/stage"
)

// Commands returns the functions that the command line needs.
func Commands() cli.Deps {
	return cli.Deps{
		Version:    Version,
		Lab:        stage.Lab(),
		Connect:    connect,
		Push:       push,
		CodeDigest: operator.CodeDigest,
		Rollback:   rollback,
		Deploy:     buildCode,
		DiffCode:   diffCode,
		CheckCode:  checkCode,
		InitServer: initServer,
		RunServer:  runServer,
		RunAgent:   runAgent,
		Join:       join,
		Leave:      leave,
		Backups:    backups{},
		ReportsOut: reportsOut{},
		Sealer:     operator.Sealer{},
		RotateBox:  agent.AskBox,
		Doctor:     examineHere,
		Demo:       demo,
		OpenUI:     openUI,
		Chaos:      runChaos,
		Local:      local{},

		CheckPolicy:         checkPolicy,
		InstallPuppetServer: installPuppetServer,
		InstallModule:       installModule,

		CreateOperator:  operator.CreateOperator,
		RequestOperator: operator.RequestOperator,
		SignFleet:       operator.SignFleet,
		RotateCodeKey:   operator.RotateCodeKey,
		OperatorsKey:    operator.OperatorsKey,
		TrustOperator:   operator.TrustOperator,
		SignAction:      operator.SignAction,
	}
}

// logger logs to standard error, which systemd stores.
func logger() *slog.Logger {
	level := slog.LevelInfo
	if os.Getenv("TUTTI_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func connect(c cli.Connection) (cli.Server, error) {
	if err := renewOperator(c); err != nil {
		fmt.Fprintln(os.Stderr, "tutti: the operator's certificate was not renewed:", tutti.Visible(err.Error()))
	}
	client, err := operator.Connect(operator.ConnectOptions(c))
	if err != nil {
		return nil, err
	}
	return client, nil
}

// renewOperator renews the operator's certificate when the renewal is due, before a command
// uses it. If the renewal fails, the command uses the old certificate.
func renewOperator(c cli.Connection) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), operator.RenewDeadline, tutti.Errorf(tutti.CodeDeadline, "no answer within %s", operator.RenewDeadline))
	defer cancel()
	return operator.RenewOperator(ctx, operator.ConnectOptions(c), time.Now())
}

func push(ctx context.Context, s cli.Server, c cli.Connection, in cli.PushCode) (tutti.CodePushed, error) {
	return operator.Push(ctx, s, in.Dir, in.Environment, in.Reaction, control.SourceOf(ctx, in.Dir), signs(ctx, s, c, in.Environment, in.Again))
}

// The function `signs` returns a function that signs the code of an environment. It asks the server only when it is called,
// because reading the files may take long.
func signs(ctx context.Context, s cli.Server, c cli.Connection, environment string, again bool) operator.Sign {
	return func(manifest []byte) (tutti.SignedCode, error) {
		signer, err := operator.NewSigner(ctx, s, c.OperatorDir)
		if err != nil {
			return tutti.SignedCode{}, err
		}
		signer.Again = again
		return signer.Code(environment, manifest)
	}
}

func checkCode(ctx context.Context, dir string, modules []string) ([]tutti.CodeProblem, error) {
	install, err := puppet.Find("/")
	if err != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s; or let a node check the code: tutti code check --node NAME", strings.Replace(err.Error(), "this node", "this machine", 1))
	}
	return install.Check(ctx, "", dir, modules...)
}

// The function `buildCode` puts the code of an environment together from a control repository.
func buildCode(ctx context.Context, in cli.DeployCode) (cli.Deployable, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return cli.Deployable{}, tutti.Wrap(tutti.CodeInvalid, err, "the directory for fetched repositories")
	}
	code, err := control.Build(ctx, control.Request{
		Cache: control.Cache{Dir: filepath.Join(cache, "tutti")}, Repository: in.Repository, Dir: in.Dir, Ref: in.Ref,
		Environment: in.Environment, Forge: in.Forge, Dirty: in.Dirty,
	})
	if err != nil {
		return cli.Deployable{}, err
	}
	raw, err := json.Marshal(code.Manifest)
	out := cli.Deployable{Environment: code.Manifest.Environment, Code: tutti.DigestOf(raw), Source: code.Source, Files: len(code.Manifest.Files), Modules: len(code.Modules)}
	out.Push = func(ctx context.Context, s cli.Server, c cli.Connection) (tutti.CodePushed, error) {
		return operator.Send(ctx, s, code.Manifest, code.Read, tutti.CodePush{Source: &code.Source}, signs(ctx, s, c, out.Environment, false))
	}
	return out, err
}

func rollback(ctx context.Context, s cli.Server, c cli.Connection, in cli.RollbackTo) (tutti.CodePushed, error) {
	return operator.Rollback(ctx, s, c.OperatorDir, in)
}

func initServer(o cli.ServerInit) error {
	const unit = "tutti-server.service"
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Dir = dir
	if o.Unit { // if the unit cannot work, return the error before creating anything
		if _, err := machine.UnitText(unit, "server --dir "+o.Dir); err != nil {
			return err
		}
	}
	err = InitServer(InitOptions{
		Dir: o.Dir, Host: o.Host, Also: o.Also, Listen: o.Listen, Bus: o.Bus, Operator: o.Operator, OperatorDir: o.OperatorDir,
	})
	if err != nil || !o.Unit {
		return err
	}
	if err := machine.StartUnit(context.Background(), unit, "server --dir "+o.Dir); err != nil {
		return err
	}
	return machine.WriteBackupUnits(o.Dir)
}

// serverGarbage is the allowed amount of garbage in the server's memory, in percent of the
// memory in use (GOGC). Go's default is 100. With 50 the server needs a fifth less memory
// and a few percent more CPU (docs/benchmarks.md).
const serverGarbage = 50

func runServer(ctx context.Context, o cli.ServerRun) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serverGarbage)
	}
	s, err := NewServer(ServerOptions{
		Dir: o.Dir, Listen: o.Listen, Bus: o.Bus, Socket: o.Socket, Silence: o.Silence, MaxRuns: o.MaxRuns, Compiles: o.MaxCompiles, KeepJobs: o.KeepJobs,
		Reserve: uint64(max(0, o.Reserve)) << 20, Reports: retain.Reports{Most: o.KeepReports, For: o.KeepReportsFor}, ScrubEvery: o.ScrubEvery, Logger: logger(),
		AuditFile: o.AuditFile, AuditSyslog: o.AuditSyslog, Metrics: o.Metrics,
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func runAgent(ctx context.Context, o cli.AgentRun) error {
	a, err := NewAgent(AgentOptions{Dir: o.Dir, Root: o.Root, Beat: o.Beat, Policy: o.Policy, Warm: o.Warm, FactsEvery: o.FactsEvery, Logger: logger()})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func join(ctx context.Context, o cli.JoinNode) (cli.JoinedNode, error) {
	out := cli.JoinedNode{Dir: o.Dir}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return out, err
	}
	how := machine.JoinOptions{Dir: dir, Token: o.Token, Name: o.Name, Again: o.Again, CodeKeys: o.CodeKeys}
	if o.ByCertificate {
		by := machine.PuppetIdentity{Server: o.Server, Pin: o.Pin, Certificate: o.Certificate, PrivateKey: o.PrivateKey}
		if by.Certificate == "" {
			if by.Certificate, by.PrivateKey, err = (puppet.Local{Root: o.Root}).HostCertificate(ctx); err != nil {
				return out, err
			}
		}
		out.Node, out.Pending, err = machine.JoinByCertificate(ctx, how, by)
	} else {
		out.Node, err = machine.Join(ctx, how)
	}
	if err != nil || out.Pending != "" {
		return out, err
	}
	if o.Unit {
		if err := machine.StartUnit(ctx, "tutti-agent.service", "agent --dir "+dir); err != nil {
			return out, err
		}
	}
	out.Found = findings(doctor.OfNames(out.Node, collect.Certname(ctx, o.Root))) // Puppet is slow
	return out, nil
}

func findings(of []doctor.Finding) []cli.Finding {
	var out []cli.Finding
	for _, f := range of {
		out = append(out, cli.Finding(f))
	}
	return out
}

func leave(ctx context.Context, o cli.LeaveNode) (cli.LeftNode, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return cli.LeftNode{}, err
	}
	left, err := machine.Leave(ctx, machine.LeaveOptions{Dir: dir, Offline: o.Offline})
	return cli.LeftNode(left), err
}

// The type `backups` implements the commands `server backup` and `server restore`.
type backups struct{}

func (backups) Backup(ctx context.Context, o cli.ServerBackup) (cli.BackupMade, error) {
	if o.Into != "" {
		if err := os.MkdirAll(o.Into, 0o700); err != nil {
			return cli.BackupMade{}, tutti.Wrap(tutti.CodeInvalid, err, "directory for backups")
		}
		o.File = filepath.Join(o.Into, serverdir.BackupName(now()))
	}
	end, err := serverdir.Backup(ctx, serverdir.BackupOptions{Dir: o.Dir, Socket: o.Socket, File: o.File, Out: o.Out, Release: Version})
	made := cli.BackupMade{File: o.File, Seq: end.Seq, Link: end.Link, Entries: end.Entries, Blobs: end.Blobs}
	if err == nil && o.Into != "" {
		made.Removed, err = serverdir.PruneBackups(o.Into, o.Keep)
	}
	return made, err
}

func (backups) Restore(ctx context.Context, file, dir string) (cli.BackupMade, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return cli.BackupMade{}, err
	}
	head, end, err := serverdir.Restore(ctx, file, dir)
	return cli.BackupMade{File: file, MadeAt: head.MadeAt, Seq: end.Seq, Link: end.Link, Entries: end.Entries, Blobs: end.Blobs}, err
}

func (backups) NewEpoch(dir string, above uint64) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return serverdir.NewEpoch(dir, above)
}

func examineHere(ctx context.Context, o cli.Examine) []cli.Finding {
	for _, dir := range []*string{&o.ServerDir, &o.AgentDir} {
		if abs, err := filepath.Abs(*dir); err == nil {
			*dir = abs
		}
	}
	return findings(examine(ctx, o))
}
