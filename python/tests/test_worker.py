"""Workers of a server, which scripts own."""

import re
import tempfile
import unittest

import support
import pstrain

SCRIPT = support.PYTHON / "tests" / "linear.py"
PROCESS = f"{support.sys.executable} {SCRIPT} -"
JOB = ["--workers=2", "--epochs=20", "--batch-size=8", "--learning-rate=0.3"]


class TestWorker(unittest.TestCase):
    def test_one_script_is_worker_and_process(self):
        with support.Server(PROCESS, *JOB) as server:
            workers = [support.start(SCRIPT, server.address) for _ in range(2)]
            for worker in workers:
                code, said = support.finish(worker)
                self.assertEqual(code, 0, said)
            self.assertLess(server.results().summary["loss"], 0.01)

    def test_the_first_worker_describes_the_model_to_a_server(self):
        with support.Server("worker", *JOB) as server:
            workers = [support.start(SCRIPT, server.address) for _ in range(2)]
            for worker in workers:
                code, said = support.finish(worker)
                self.assertEqual(code, 0, said)
            self.assertLess(server.results().summary["loss"], 0.01)

    def test_run_works_for_a_server(self):
        with support.Server(PROCESS, *JOB) as server:
            other = support.start(SCRIPT, server.address)
            pstrain.run(
                server.address, support.gradient, support.PARAMS, examples=len(support.X), name="mine"
            )
            self.assertEqual(support.finish(other)[0], 0)
            names = [worker["name"] for worker in server.results().summary["workers"]]
            self.assertIn("mine", names)

    def test_a_script_that_fails_leaves_with_its_reason(self):
        for how, why in [
            ("fail", "ZeroDivisionError: on purpose"),
            ("forget", "call step.push"),
            ("twice", "pushed before"),
        ]:
            with support.Server(PROCESS, *JOB) as server:
                failing = support.start(SCRIPT, server.address, how)
                other = support.start(SCRIPT, server.address)
                code, said = support.finish(failing)
                self.assertEqual(code, 1, said)
                self.assertIn(why, said)
                # The others continue.
                code, said = support.finish(other)
                self.assertEqual(code, 0, said)

    def test_a_script_may_leave_its_loop(self):
        with support.Server(PROCESS, *JOB) as server:
            leaving = support.start(SCRIPT, server.address, "break")
            other = support.start(SCRIPT, server.address)
            for worker in (leaving, other):
                code, said = support.finish(worker)
                self.assertEqual(code, 0, said)

    def test_another_dataset_is_refused(self):
        with support.Server(PROCESS, *JOB) as server:
            with self.assertRaisesRegex(pstrain.ProgramError, "digest"):
                pstrain.run(
                    server.address,
                    support.gradient,
                    support.PARAMS,
                    examples=len(support.X),
                    digest="other",
                )

    def test_a_server_that_is_not_there_is_said(self):
        with self.assertRaises(pstrain.ProgramError):
            pstrain.run("unix:/nowhere", support.gradient, support.PARAMS, examples=1, lease="100ms")

    def test_a_process_is_one_for_run_too(self):
        command = [support.program.find(), "run", f"--process={PROCESS}", *JOB, "--quiet"]
        with tempfile.TemporaryDirectory() as folder:
            code = support.subprocess.call([*command, f"--out={folder}/o"], timeout=support.PATIENCE)
            self.assertEqual(code, 0)
            self.assertLess(pstrain.Results(f"{folder}/o").summary["loss"], 0.01)

    def test_standard_input_is_empty_for_the_script_and_its_children(self):
        whole = {
            "sys.stdin.read(1)": 0,
            "subprocess.run(['cat'], timeout=60)": 0,
            "subprocess.Popen(['cat'], stdout=subprocess.DEVNULL)": 0,
            "input('name? ')": 1,
        }
        script = f"""
import subprocess, sys
sys.path.insert(0, {str(support.PYTHON / "tests")!r})
import support, pstrain
def gradient(p, rows):
    READ
    return support.gradient(p, rows)
pstrain.run("-", gradient, support.PARAMS, examples=64, evaluate=support.evaluate)
"""
        for read, wanted in whole.items():
            with tempfile.TemporaryDirectory() as folder:
                with open(f"{folder}/reads.py", "w", encoding="utf-8") as file:
                    file.write(script.replace("READ", read))
                process = f"--process={support.sys.executable} {folder}/reads.py"
                command = [support.program.find(), "run", process, "--epochs=1", "--batch-size=8"]
                run = support.subprocess.run(command, capture_output=True, timeout=support.PATIENCE)
                self.assertEqual(run.returncode, wanted, f"{read}: {run.stderr.decode()}")
                self.assertEqual(b"EOFError" in run.stderr, wanted == 1, run.stderr)

    def test_the_process_without_any_package_trains(self):
        page = (support.ROOT / "docs" / "compute-process.md").read_text(encoding="utf-8")
        (bare,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        with tempfile.TemporaryDirectory() as folder:
            script = f"{folder}/bare.py"
            with open(script, "w", encoding="utf-8") as file:
                file.write(bare)
            command = [support.program.find(), "run", f"--process={support.sys.executable} {script}"]
            command += ["--epochs=2", "--quiet", f"--out={folder}/o"]
            self.assertEqual(support.subprocess.call(command, timeout=support.PATIENCE), 0)
            self.assertLess(pstrain.Results(f"{folder}/o").summary["loss"], 14)


if __name__ == "__main__":
    unittest.main()
