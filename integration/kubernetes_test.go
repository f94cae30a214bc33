package integration_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"snowgate/clients"
	"snowgate/config"
	"snowgate/integration/gatewaytest"
)

const manifests = "../deploy/kubernetes"

// manifest is what the tests look at in a document of deploy/kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // of a ConfigMap
	Spec     struct {
		Selector    any
		PodSelector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"podSelector"`
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []container
			}
		}
	}
}

type container struct {
	Name, Image     string
	Args            []string
	Env             []struct{ Name, Value string }
	SecurityContext map[string]any `yaml:"securityContext"`
	StartupProbe    httpProbe      `yaml:"startupProbe"`
	ReadinessProbe  httpProbe      `yaml:"readinessProbe"`
	LivenessProbe   httpProbe      `yaml:"livenessProbe"`
}

type httpProbe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

func readManifests(t *testing.T) (all []manifest, paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(paths) < 4 {
		t.Fatalf("the manifests are %q, %v", paths, err)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return filepath.Base(path) == "kustomization.yaml" })
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for documents := yaml.NewDecoder(bytes.NewReader(content)); ; {
			var one manifest
			err := documents.Decode(&one)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			all = append(all, one)
		}
	}
	return all, paths
}

// TestKubernetesManifests: the manifests have only fields that Kubernetes knows, select pods that there
// are, and configure a gateway that starts.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	all, paths := readManifests(t)
	kustomization, err := os.ReadFile(filepath.Join(manifests, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !strings.Contains(string(kustomization), "- "+filepath.Base(path)) {
			t.Errorf("kustomization.yaml does not name %s", filepath.Base(path))
		}
	}
	var pods []map[string]string
	for _, m := range all {
		if labels := m.Spec.Template.Metadata.Labels; labels != nil {
			pods = append(pods, labels)
		}
	}
	for _, m := range all {
		selector := m.Spec.PodSelector.MatchLabels
		if m.Kind == "Service" {
			selector = make(map[string]string)
			for name, value := range m.Spec.Selector.(map[string]any) {
				selector[name] = value.(string)
			}
		}
		if selector != nil && !slices.ContainsFunc(pods, func(labels map[string]string) bool { return covers(labels, selector) }) {
			t.Errorf("%s %s selects %v, which no pod has", m.Kind, m.Metadata.Name, selector)
		}
		for _, c := range m.Spec.Template.Spec.Containers {
			if c.SecurityContext["readOnlyRootFilesystem"] != true || c.SecurityContext["allowPrivilegeEscalation"] != false {
				t.Errorf("the container %s may write to its image or gain privileges", c.Name)
			}
		}
	}
	startAsInKubernetes(t, all)
}

func covers(labels, selector map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// startAsInKubernetes starts a gateway with the variables and the file of the manifests, and asks what
// the probes ask.
func startAsInKubernetes(t *testing.T, all []manifest) {
	t.Helper()
	var file string
	var gateway container
	for _, m := range all {
		if m.Kind == "ConfigMap" && m.Metadata.Name == "snowgate" {
			file = m.Data["snowgate.yaml"]
		}
		for _, c := range m.Spec.Template.Spec.Containers {
			if c.Name == "snowgate" {
				gateway = c
			}
		}
	}
	var known []string
	for _, v := range config.Variables() {
		known = append(known, v.Name, v.Name+"_FILE")
	}
	secret, _ := clients.NewSecret()
	var env []string
	for _, v := range gateway.Env {
		if !slices.Contains(known, v.Name) {
			t.Errorf("the variable %s is unknown", v.Name)
		}
		switch v.Name {
		case "SNOWGATE_CONFIG", "SNOWGATE_REDIS_URL_FILE", "SNOWGATE_ADMIN_LISTEN", "SNOWGATE_WORKER_ID", "SNOWGATE_DRAIN": // of the test
		case "SNOWGATE_ADMIN_CLIENT_SECRET_FILE":
			path := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(path, []byte(secret.Reveal()+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			env = append(env, v.Name+"="+path)
		default:
			env = append(env, v.Name+"="+v.Value)
		}
	}
	if file == "" || len(env) < 3 || !slices.Equal(gateway.Args, []string{"serve"}) {
		t.Fatalf("the gateway of the manifests: arguments %q, variables %q, file %q", gateway.Args, env, file)
	}
	g := gatewaytest.Start(t, gatewaytest.Options{Config: file, Env: env})
	for _, p := range []httpProbe{gateway.StartupProbe, gateway.ReadinessProbe, gateway.LivenessProbe} {
		if got := g.Get(p.HTTPGet.Path, ""); got.StatusCode != http.StatusOK {
			t.Errorf("the probe %s gets %d", p.HTTPGet.Path, got.StatusCode)
		}
	}
}

// TestKubernetesDecodes: every field of the manifests is one that the types of Kubernetes have.
// Building them takes both processors for a quarter of a minute, so "make kubernetes" does it.
func TestKubernetesDecodes(t *testing.T) {
	if os.Getenv("SNOWGATE_TEST_KUBERNETES") != "1" {
		t.Skip("make kubernetes does this")
	}
	_, paths := readManifests(t)
	program := filepath.Join(t.TempDir(), "kubernetes")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("testdata", "kubernetes")
	if out, err := build.CombinedOutput(); err != nil {
		gatewaytest.Missing(t, "the types of Kubernetes cannot be built, which needs their modules: "+string(out))
	}
	if out, err := exec.Command(program, paths...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("apiVersion: v1\nkind: Service\nspec:\n  clusterIp: None\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, wrong).CombinedOutput(); err == nil || !strings.Contains(string(out), "clusterIp") {
		t.Errorf("a field in the wrong case is decoded: %v\n%s", err, out)
	}
}
