package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// instanceKey parses SITE/NAME, or NAME with --site.
func instanceKey(arg, site string) (fleet.ObjectKey, error) {
	scope, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		scope, name = site, arg
	}
	switch {
	case scope == "":
		return fleet.ObjectKey{}, &usageError{fmt.Errorf("%q has no site: use SITE/NAME", arg)}
	case qualified && site != "" && site != scope:
		return fleet.ObjectKey{}, &usageError{fmt.Errorf("%q is not at site %s", arg, site)}
	}
	if err := fleet.ValidateName("site", scope); err != nil {
		return fleet.ObjectKey{}, err
	}
	if err := fleet.ValidateName("instance", name); err != nil {
		return fleet.ObjectKey{}, err
	}
	return fleet.InstanceKey(fleet.SiteName(scope), fleet.InstanceName(name)), nil
}

// writerKey parses deployment/NAME, or an instance.
func writerKey(arg, site string) (fleet.ObjectKey, error) {
	name, is := strings.CutPrefix(arg, deploymentPrefix)
	if !is || site != "" {
		return instanceKey(arg, site)
	}
	return fleet.DeploymentKey(fleet.DeploymentName(name)), fleet.ValidateName("deployment", name)
}

// subject is an object's name for people: SITE/NAME for an instance, else NAME.
func subject(key fleet.ObjectKey) string {
	if key.Scope == "" {
		return key.Name
	}
	return key.Scope + "/" + key.Name
}
