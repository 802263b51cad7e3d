"""One watch for a step's operations (ops/cancellation_watch), compiled against a stand-in for TensorFlow's manager."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ROOT, Run

MANAGER = """
#pragma once
#include <functional>
#include <map>
namespace tensorflow {
using CancellationToken = long;
// Calls back inside RegisterCallback, before it says that all is well, if it is to: what another thread that cancels
// just then does.
class CancellationManager {
 public:
  static constexpr CancellationToken kInvalidToken = -1;
  CancellationToken get_cancellation_token() { return next_++; }
  bool RegisterCallback(CancellationToken token, std::function<void()> callback) {
    if (cancelled) return false;
    callbacks[token] = callback;
    if (cancel_while_registering) StartCancel();
    return true;
  }
  bool TryDeregisterCallback(CancellationToken token) { return callbacks.erase(token) > 0; }
  void StartCancel() {
    cancelled = true;
    std::map<CancellationToken, std::function<void()>> taken;
    taken.swap(callbacks);
    for (auto& one : taken) one.second();
  }
  bool cancel_while_registering = false;
  bool cancelled = false;
  std::map<CancellationToken, std::function<void()>> callbacks;

 private:
  CancellationToken next_ = 0;
};
}  // namespace tensorflow
"""

PROGRAM = """
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>
#include "horovod_tf/common/runtime/process_runtime.h"
#include "horovod_tf/ops/cancellation_watch.h"

using horovod_tf::CancellationWatch;
using Manager = tensorflow::CancellationManager;

static std::vector<std::uint64_t> withdrawn;
namespace horovod_tf {
void ProcessWithdraw(std::uint64_t ticket, std::string_view) { withdrawn.push_back(ticket); }
}  // namespace horovod_tf

#define CHECK(x) if (!(x)) { std::printf("line %d: %s\\n", __LINE__, #x); std::exit(1); }

int main() {
  std::optional<Manager> manager;  // each step's in the same place
  manager.emplace();
  const auto first = CancellationWatch::Join(&*manager);
  const auto second = CancellationWatch::Join(&*manager);
  CHECK(first != nullptr && first == second && first->ticket() != 0 && manager->callbacks.size() == 1);
  first->Leave();
  CHECK(manager->callbacks.size() == 1);
  second->Leave();
  CHECK(manager->callbacks.empty());
  const auto third = CancellationWatch::Join(&*manager);
  CHECK(third->ticket() != first->ticket() && manager->callbacks.size() == 1);
  third->Submitted();
  CHECK(withdrawn.empty());

  manager->StartCancel();
  CHECK(withdrawn == std::vector<std::uint64_t>{third->ticket()});
  third->Submitted();
  CHECK(withdrawn.size() == 2 && withdrawn[1] == third->ticket());
  CHECK(CancellationWatch::Join(&*manager) == nullptr);
  third->Leave();
  CHECK(CancellationWatch::Join(&*manager) == nullptr);

  manager.emplace();
  manager->cancel_while_registering = true;
  CHECK(CancellationWatch::Join(&*manager) == nullptr);
  manager.emplace();  // a later step
  const auto later = CancellationWatch::Join(&*manager);
  CHECK(later != nullptr);
  later->Leave();

  const auto never = CancellationWatch::Join(nullptr);
  CHECK(never != nullptr && never->ticket() == 0);
  never->Submitted();
  never->Leave();
}
"""


@pytest.fixture
def program(tmp_path: Path, run: Run) -> Path:
    folder = tmp_path / "tensorflow/core/framework"
    folder.mkdir(parents=True)
    (folder / "cancellation.h").write_text(MANAGER)
    (tmp_path / "main.cc").write_text(PROGRAM)
    sources = [str(tmp_path / "main.cc"), str(ROOT / "horovod_tf/ops/cancellation_watch.cc")]
    done = run("g++", "-std=c++17", f"-I{tmp_path}", f"-I{ROOT}", *sources, "-o", str(tmp_path / "watch"), "-pthread")
    assert done.returncode == 0, done.stderr
    return tmp_path / "watch"


def test_a_step_is_watched_once_and_no_longer_than_it_has_operations(program: Path, run: Run) -> None:
    done = run(str(program))
    assert done.returncode == 0, done.stdout + done.stderr
