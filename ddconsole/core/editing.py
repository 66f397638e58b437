"""temporary"""
from dataclasses import replace
class EditProblem(ValueError): pass
def edit_cell(cell, deployment, changes):
    point = cell.point
    for k, v in changes.items():
        if k.startswith("flag:"):
            args = dict(deployment.args)
            if v is None: args.pop(k[5:], None)
            else: args[k[5:]] = int(v) if v.isdigit() else v
            deployment = replace(deployment, args=args)
        else:
            point = replace(point, **{k: int(v)})
    return point, deployment
