"""What the machine is: NVML, PCIe, NUMA, CPUs and memory, as readings. Needs only psutil and pynvml."""
