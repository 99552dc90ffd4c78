package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	temporallog "go.temporal.io/server/common/log"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

// temporalStop is how long Temporal's services get to end; the store survives a kill.
const temporalStop = 5 * time.Second

// runTemporal serves Temporal and Temporal Web until the context ends.
func runTemporal(ctx context.Context, c temporalConfig) error {
	if err := c.prepareStore(); err != nil {
		return err
	}
	server, err := c.newServer()
	if err != nil {
		return fmt.Errorf("set up Temporal: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start Temporal: %w", err)
	}
	web, err := c.newWeb()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- web.Start() }()
	select {
	case <-ctx.Done():
	case err := <-served:
		return fmt.Errorf("serve Temporal Web: %w", errors.Join(err, errors.New("it ended")))
	}
	web.Stop()
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	select {
	case err := <-stopped:
		return err
	case <-time.After(temporalStop):
		return nil
	}
}

// prepareStore creates the store under another name and renames it when complete: an incomplete schema would look
// like a finished one.
func (c temporalConfig) prepareStore() error {
	final := filepath.Join(c.Dir, temporalSchema)
	if _, err := os.Stat(final); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for Temporal's store: %w", err)
	}
	fresh := temporalConfig{Dir: filepath.Join(c.Dir, "new")}
	if err := errors.Join(os.RemoveAll(fresh.Dir), os.MkdirAll(fresh.Dir, 0o700)); err != nil {
		return fmt.Errorf("make room for Temporal's store: %w", err)
	}
	sql := fresh.sql()
	// The plugin keeps its connection open; without a WAL the file is complete nevertheless.
	sql.ConnectAttributes["journal_mode"] = "delete"
	sql.ConnectAttributes["synchronous"] = "0" // moved into place only when whole
	if err := setUpSchema(sql); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(fresh.Dir, temporalSchema), final); err != nil {
		return fmt.Errorf("keep Temporal's store: %w", err)
	}
	return os.Remove(fresh.Dir)
}

func setUpSchema(sql *config.SQL) error {
	if err := sqliteschema.SetupSchema(sql); err != nil {
		return fmt.Errorf("make Temporal's store: %w", err)
	}
	namespace, err := sqliteschema.NewNamespaceConfig(temporalCluster, temporalNamespace, false, nil)
	if err != nil {
		return fmt.Errorf("describe the Temporal namespace: %w", err)
	}
	if err := sqliteschema.CreateNamespaces(sql, namespace); err != nil {
		return fmt.Errorf("make the Temporal namespace: %w", err)
	}
	return nil
}

func (c temporalConfig) newServer() (temporal.Server, error) {
	conf, err := c.server(c.sql())
	if err != nil {
		return nil, err
	}
	logger := temporallog.NewZapLogger(temporallog.BuildZapLogger(temporallog.Config{Level: "warn"}))
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, err
	}
	claims, err := authorization.GetClaimMapperFromConfig(&conf.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	return temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(c.hosts()),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(temporalSettings()),
	)
}

func (c temporalConfig) newWeb() (*uiserver.Server, error) {
	host, portText, err := net.SplitHostPort(c.Web)
	if err != nil {
		return nil, fmt.Errorf("read the address of Temporal Web: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("read the port of Temporal Web: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]" // it joins the two itself
	}
	return uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host:                host,
		Port:                port,
		TemporalGRPCAddress: c.frontendHost(),
		DefaultNamespace:    temporalNamespace,
		EnableUI:            true,
		HideLogs:            true,
		DisableNewsFetch:    true,
		CORS:                uiconfig.CORS{CookieInsecure: true}, // plain HTTP on a laptop
	})), nil
}
